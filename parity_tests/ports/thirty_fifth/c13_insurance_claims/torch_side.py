"""Frequency and severity of motor claims: deep & cross network. Predicts on the log scale inside."""

import torch
import torch.nn.functional as F
from torch import nn


class Claims(nn.Module):
    def __init__(self, regions=6):
        super().__init__()
        self.regions = regions
        self.register_buffer("centre", torch.tensor([44.0, 6.0, 75.0, 50.0]), persistent=False)
        self.register_buffer("spread", torch.tensor([14.0, 4.0, 30.0, 25.0]), persistent=False)
        n = 4 + regions
        self.cross = nn.ModuleList([nn.Linear(n, n), nn.Linear(n, n)])
        self.deep = nn.Sequential(nn.Linear(n, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU())
        self.rate = nn.Linear(n + 8, 1)
        self.size = nn.Linear(n + 8, 1)

    def forward(self, numeric, region, exposure):
        onehot = F.one_hot(region.long().view(-1), self.regions).to(numeric.dtype)
        x0 = x = torch.cat([(numeric - self.centre) / self.spread, onehot], dim=1)
        for layer in self.cross:
            x = torch.addcmul(x, x0, layer(x))
        both = torch.cat([x, self.deep(x0)], dim=1)
        return {"freq": torch.exp(self.rate(both) + exposure.log()), "size": self.size(both).exp()}


def build():
    return Claims()


def poisson(pred, target):
    return F.poisson_nll_loss(pred, target, log_input=False, full=False, eps=0.0)


def gamma(pred, target):
    claim = target > 0
    t = target[claim] / pred[claim]
    return (t - t.log() - 1).sum() / target.numel()
