import math

import numpy as np
import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

P = 16


class Siren(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(cout, cin).uniform_(-1, 1) / math.sqrt(cin))
        self.bias = nn.Parameter(torch.zeros(cout))
        self.freq = nn.Parameter(torch.full((cout,), 1.5))

    def forward(self, x):
        return torch.sin(self.freq * nn.functional.linear(x, self.weight, self.bias))


class DeepONet(nn.Module):
    def __init__(self, sensors=20, features=10):
        super().__init__()
        self.branch = nn.Sequential(nn.Linear(sensors, 24), nn.Tanh(), nn.Linear(24, P))
        b = np.random.RandomState(7).normal(0, 2.0, (2, features))
        self.register_buffer("fourier", torch.from_numpy(b))
        self.trunk = nn.Sequential(Siren(2 * features, 24), Siren(24, P))
        self.offset = nn.Parameter(torch.zeros(()))

    def forward(self, sensors, points):
        z = points @ self.fourier.to(points.dtype)
        trunk = self.trunk(torch.cat((z.sin(), z.cos()), dim=1))
        g = (self.branch(sensors) * trunk).mean(1, keepdim=True) + self.offset
        x = points[:, :1]
        return 4 * x * (1 - x) * g


class ClippedSGD(torch.optim.Optimizer):
    """Heavy ball with the rate inside the velocity, gradients clipped by their common norm."""

    def __init__(self, params, lr, momentum, clip):
        super().__init__(params, dict(lr=lr, momentum=momentum))
        self.clip = clip

    @torch.no_grad()
    def step(self, closure=None):
        params = [(g, p) for g in self.param_groups for p in g["params"] if p.grad is not None]
        norm = torch.sqrt(sum(p.grad.square().sum() for _, p in params))
        scale = self.clip / torch.clamp(norm, min=self.clip)
        for group, p in params:
            v = self.state[p].setdefault("velocity", torch.zeros_like(p))
            v.mul_(group["momentum"]).sub_(group["lr"] * scale * p.grad)
            p.add_(v)


def rate(step, low=1e-3, peak=0.1, warmup=4, decay=30, alpha=0.05):
    if step < warmup:
        return low + (peak - low) * step / warmup
    done = min(step - warmup, decay) / decay
    return peak * ((1 - alpha) * 0.5 * (1 + math.cos(math.pi * done)) + alpha)


def optimizer(params):
    opt = ClippedSGD(params, lr=1.0, momentum=0.875, clip=0.3)
    return opt, LambdaLR(opt, rate)


def build():
    return DeepONet()
