"""Photo-z network and its optimizer with a warm-up and a cosine."""

import math

import torch
import torch.nn.functional as F
from torch import nn

PEAK, WARMUP, TOTAL = 0.05, 10, 60


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))

    def forward(self, x):
        return x + self.net(x)


class PhotoZ(nn.Module):
    def __init__(self, bands=5, width=24):
        super().__init__()
        self.proj = nn.Linear(2 * bands - 1, width)
        self.blocks = nn.Sequential(Residual(width), Residual(width))
        self.z = nn.Linear(width, 1)

    def forward(self, mags):
        x = torch.cat([mags, -mags.diff(dim=1)], dim=1)
        x = self.blocks(F.silu(self.proj(x)))
        return F.softplus(self.z(x), threshold=50)


def build():
    return PhotoZ()


def factor(step):
    if step < WARMUP:
        return (step + 1) / WARMUP
    progress = min((step - WARMUP) / (TOTAL - WARMUP), 1.0)
    return 0.5 * (1 + math.cos(math.pi * progress))


def optimizer(params):
    opt = torch.optim.SGD(params, lr=PEAK, momentum=0.9)
    return opt, torch.optim.lr_scheduler.LambdaLR(opt, factor)
