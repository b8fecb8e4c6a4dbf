import itertools

import torch
from torch import nn


class BatchNorm(nn.Module):
    """Batch norm over all axes but the last, as in Keras: eps 1e-3, decay 0.99, population variance."""

    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))
        self.bias = nn.Parameter(torch.zeros(features))
        self.register_buffer("running_mean", torch.zeros(features))
        self.register_buffer("running_var", torch.ones(features))

    def forward(self, x):
        mean, var = self.running_mean, self.running_var
        if self.training:
            axes = tuple(range(x.ndim - 1))
            mean, var = x.mean(axes), x.var(axes, correction=0)
            with torch.no_grad():
                self.running_mean.mul_(0.99).add_(mean, alpha=0.01)
                self.running_var.mul_(0.99).add_(var, alpha=0.01)
        return (x - mean) * torch.rsqrt(var + 1e-3) * self.weight + self.bias


def shared_mlp(*sizes):
    layers = []
    for i, o in itertools.pairwise(sizes):
        layers += [nn.Linear(i, o, bias=False), BatchNorm(o), nn.ReLU()]
    return nn.Sequential(*layers)


class STN(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.k = k
        self.mlp = shared_mlp(k, 16, 32)
        self.fc = nn.Linear(32, 16)
        self.matrix = nn.Linear(16, k * k)
        with torch.no_grad():
            self.matrix.bias.copy_(torch.eye(k).flatten())

    def forward(self, x):
        y = self.mlp(x).amax(dim=1)
        y = self.matrix(torch.relu(self.fc(y)))
        return torch.einsum("bnk,bkc->bnc", x, y.view(-1, self.k, self.k))


class PointNet(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.stn = STN(3)
        self.features = shared_mlp(3, 32, 64)
        self.head = nn.Sequential(
            nn.Linear(64, 32, bias=False), BatchNorm(32), nn.ReLU(), nn.Linear(32, classes)
        )

    def forward(self, x):
        return self.head(self.features(self.stn(x)).amax(dim=1))
