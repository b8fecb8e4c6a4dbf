import torch
import torch.nn.functional as F
from torch import nn


class BatchNorm(nn.BatchNorm1d):
    def forward(self, x):
        if not self.training:
            return super().forward(x)
        var, mean = torch.var_mean(x, dim=0, correction=0)
        with torch.no_grad():
            self.running_mean += self.momentum * (mean - self.running_mean)
            self.running_var += self.momentum * (var - self.running_var)
        return (x - mean) * torch.rsqrt(var + self.eps) * self.weight + self.bias


class Net(nn.Module):
    def __init__(self, width=16, features=10):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(12, width, bias=False),
            BatchNorm(width, eps=1e-3),
            nn.LeakyReLU(0.25),
            nn.Linear(width, width),
            nn.ReLU(),
        )
        self.projector = nn.Sequential(
            nn.Linear(width, features), BatchNorm(features), nn.Linear(features, features)
        )

    def forward(self, first, second):
        return tuple(self.projector(self.encoder(view)) for view in (first, second))


def correlation(a, b):
    a = a - a.mean(0, keepdim=True)
    b = b - b.mean(0, keepdim=True)
    return F.normalize(a, dim=0).T @ F.normalize(b, dim=0)


def step(model, batch, strength=0.01):
    inputs = batch[0] if isinstance(batch, (tuple, list)) else batch
    c = correlation(*model(inputs["first"], inputs["second"]))
    diagonal = torch.diagonal(c)
    on = (1 - diagonal).pow(2).sum()
    off = c.pow(2).sum() - diagonal.pow(2).sum()
    return on + strength * off
