import math

import torch
from torch import nn
from torch.nn import functional as F


class DecaySGD(torch.optim.SGD):
    """SGD with decoupled decay and clipping of the whole gradient."""

    def __init__(self, groups, lr, clip):
        self.clip = clip
        super().__init__(groups, lr=lr)

    @torch.no_grad()
    def step(self, closure=None):
        ps = [p for g in self.param_groups for p in g["params"] if p.grad is not None]
        norm = torch.sqrt(sum(p.grad.pow(2).sum() for p in ps))
        scale = (self.clip / norm).clamp(max=1.0)
        for g in self.param_groups:
            for p in g["params"]:
                if p.grad is not None:
                    p.mul_(1 - g["lr"] * g["decay"]).sub_(p.grad * scale, alpha=g["lr"])


def optimizer(parameters, warmup=4, total=24):
    parameters = list(parameters)
    decay = [p for p in parameters if p.ndim > 1]
    rest = [p for p in parameters if p.ndim <= 1]
    opt = DecaySGD([{"params": decay, "decay": 0.02}, {"params": rest, "decay": 0.0}], lr=0.1, clip=0.5)

    def factor(i):
        if i < warmup:
            return (i + 1) / warmup
        return 0.5 * (1 + math.cos(math.pi * min(1.0, i / total)))

    return opt, torch.optim.lr_scheduler.LambdaLR(opt, factor)


def loss(output, target):
    return F.poisson_nll_loss(output, target, log_input=True)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.region = nn.Embedding(12, 4)
        self.vehicle = nn.Embedding(8, 3)
        self.body = nn.Sequential(
            nn.Linear(13, 24), nn.LayerNorm(24), nn.ReLU(), nn.Linear(24, 12), nn.Tanh()
        )
        self.rate = nn.Linear(12, 1)

    def forward(self, rating, codes, exposure):
        region, vehicle = codes.unbind(dim=1)
        x = torch.cat([rating, self.region(region), self.vehicle(vehicle)], dim=1)
        return self.rate(self.body(x)) + exposure.log()
