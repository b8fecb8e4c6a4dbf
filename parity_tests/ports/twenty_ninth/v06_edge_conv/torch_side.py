import torch
import torch.nn as nn


def knn(x, k):
    # x: (B, N, 3)
    d = torch.cdist(x, x)
    return d.topk(k, dim=-1, largest=False).indices


def graph_feature(f, idx):
    # f: (B, C, N) -> (B, 2C, N, k)
    B, C, N = f.shape
    k = idx.shape[-1]
    flat = idx.reshape(B, 1, N * k).expand(-1, C, -1)
    nb = f.gather(2, flat).view(B, C, N, k)
    me = f.unsqueeze(-1).expand_as(nb)
    return torch.cat((me, nb - me), dim=1)


class DGCNN(nn.Module):
    def __init__(self, k=5):
        super().__init__()
        self.k = k
        self.act = nn.LeakyReLU(0.2)
        self.conv1 = nn.Sequential(
            nn.Conv2d(6, 8, 1, bias=False), nn.BatchNorm2d(8, eps=1e-3, momentum=0.01), self.act
        )
        self.conv2 = nn.Sequential(
            nn.Conv2d(16, 12, 1, bias=False), nn.BatchNorm2d(12, eps=1e-3, momentum=0.01), self.act
        )
        self.conv3 = nn.Sequential(nn.Conv1d(20, 16, 1), self.act)
        self.fc = nn.Linear(32, 3)

    def forward(self, x):
        idx = knn(x, self.k)
        x = x.transpose(1, 2)
        x1 = self.conv1(graph_feature(x, idx)).amax(-1)
        x2 = self.conv2(graph_feature(x1, idx)).amax(-1)
        h = self.conv3(torch.cat((x1, x2), 1))
        h = torch.cat((h.max(-1)[0], h.mean(-1)), 1)
        return self.fc(h)


def build():
    return DGCNN()
