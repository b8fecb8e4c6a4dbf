import torch
import torch.nn as nn
import torch.nn.functional as F


def knn(x, k):
    d = (x.unsqueeze(2) - x.unsqueeze(1)).pow(2).sum(-1)
    return d.topk(k, dim=-1, largest=False).indices


def edge_features(x, idx):
    b = torch.arange(x.shape[0], device=x.device)[:, None, None]
    near = x[b, idx]
    centre = x.unsqueeze(2).expand_as(near)
    return torch.cat([centre, near - centre], dim=-1)


class EdgeConv(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2 * cin, cout), nn.LeakyReLU(0.2), nn.Linear(cout, cout))

    def forward(self, x, idx):
        return self.net(edge_features(x, idx)).amax(dim=2)


class DGCNN(nn.Module):
    def __init__(self, k=6, classes=3):
        super().__init__()
        self.k = k
        self.edge1 = EdgeConv(3, 10)
        self.edge2 = EdgeConv(10, 14)
        self.fuse = nn.Linear(24, 20)
        self.hidden = nn.Linear(40, 12)
        self.classes = nn.Linear(12, classes)

    def forward(self, x):
        graph = knn(x, self.k)
        f1 = self.edge1(x, graph)
        f2 = self.edge2(f1, graph)
        f = F.relu(self.fuse(torch.cat([f1, f2], dim=-1)))
        g = torch.cat([f.amax(1), f.mean(1)], dim=-1)
        return self.classes(F.relu(self.hidden(g)))


def build():
    return DGCNN()
