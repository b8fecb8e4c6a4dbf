import torch
from torch import nn

POINTS, K, CLASSES = 32, 6, 4


def knn(x, k):
    diff = x.unsqueeze(2) - x.unsqueeze(1)
    dist = diff.square().sum(-1)
    return dist.topk(k, dim=-1, largest=False).indices


def gather(x, idx):
    batch = torch.arange(x.shape[0]).view(-1, 1, 1)
    return x[batch, idx]


class EdgeConv(nn.Module):
    def __init__(self, n_in, units):
        super().__init__()
        self.mlp = nn.Linear(2 * n_in, units)
        self.act = nn.LeakyReLU(0.25)

    def forward(self, x, idx):
        nb = gather(x, idx)
        centre = x.unsqueeze(2).expand_as(nb)
        edge = torch.cat([centre, nb - centre], dim=-1)
        return self.act(self.mlp(edge)).amax(dim=2)


class DGCNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.edge1 = EdgeConv(3, 12)
        self.edge2 = EdgeConv(12, 16)
        self.point = nn.Linear(28, 24)
        self.fc = nn.Linear(48, 16)
        self.logits = nn.Linear(16, CLASSES)
        self.act = nn.LeakyReLU(0.25)

    def forward(self, x):
        idx = knn(x, K)
        h1 = self.edge1(x, idx)
        h2 = self.edge2(h1, idx)
        h = self.act(self.point(torch.cat([h1, h2], dim=-1)))
        g = torch.cat([h.amax(1), h.mean(1)], dim=-1)
        return self.logits(self.act(self.fc(g)))


def build():
    return DGCNN()
