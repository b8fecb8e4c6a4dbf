import math

import torch
from torch import nn


class AffineNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.log_s = nn.Parameter(torch.zeros(dim))
        self.b = nn.Parameter(torch.zeros(dim))

    def forward(self, x):
        return self.log_s.exp() * (x + self.b), self.log_s.sum()


class AffineCoupling(nn.Module):
    """`flip` selects which half conditions the other."""

    def __init__(self, d, width, flip):
        super().__init__()
        self.flip = flip
        self.fc1 = nn.Linear(d, width)
        self.fc2 = nn.Linear(width, width)
        self.fc3 = nn.Linear(width, 2 * d)
        self.scale = nn.Parameter(torch.full((d,), 0.8))

    def forward(self, x):
        lo, hi = x.chunk(2, dim=-1)
        cond, moved = (hi, lo) if self.flip else (lo, hi)
        h = torch.tanh(self.fc2(torch.tanh(self.fc1(cond))))
        log_scale, t = self.fc3(h).chunk(2, dim=-1)
        log_scale = log_scale.tanh() * self.scale
        moved = moved * log_scale.exp() + t
        out = (moved, cond) if self.flip else (cond, moved)
        return torch.cat(out, dim=-1), log_scale.sum(-1)


class Flow(nn.Module):
    def __init__(self, dim=6, n_flows=4, width=24):
        super().__init__()
        blocks = []
        for k in range(n_flows):
            blocks.append(AffineNorm(dim))
            blocks.append(AffineCoupling(dim // 2, width, flip=k % 2 == 1))
        self.flows = nn.ModuleList(blocks)

    def forward(self, x):
        total = x.new_zeros(x.shape[0])
        for f in self.flows:
            x, ld = f(x)
            total = total + ld
        return x, total


def build():
    return Flow()


def loss(outputs, targets=None):
    z, logdet = outputs
    prior = -0.5 * (z**2 + math.log(2 * math.pi)).sum(-1)
    return -(prior + logdet).mean()
