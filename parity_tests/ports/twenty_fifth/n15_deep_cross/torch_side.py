import math

import torch
from torch import nn


class CrossNet(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))

    def forward(self, x0):
        x = x0
        for layer in self.layers:
            x = torch.addcmul(x, x0, layer(x))
        return x


class ClickRate(nn.Module):
    def __init__(self, sizes=(9, 14, 7), dim=4, numbers=6):
        super().__init__()
        self.standard = nn.LayerNorm(numbers)
        self.tables = nn.ModuleList(nn.Embedding(size, dim) for size in sizes)
        width = numbers + dim * len(sizes)
        self.cross = CrossNet(width, 2)
        self.deep = nn.Sequential(
            nn.Linear(width, 20), nn.ReLU(), nn.LayerNorm(20), nn.Linear(20, 12), nn.ReLU()
        )
        self.click = nn.Linear(width + 12, 1)

    def forward(self, numbers, category):
        x0 = torch.cat(
            [self.standard(numbers)] + [table(ids) for table, ids in zip(self.tables, category.unbind(1))],
            dim=1,
        )
        return self.click(torch.cat([self.cross(x0), self.deep(x0)], dim=1))


class Nesterov(torch.optim.Optimizer):
    """The velocity holds the learning rates of its time; decay is apart from it."""

    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0):
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            lr, mu = group["lr"], group["momentum"]
            for p in (p for p in group["params"] if p.grad is not None):
                p.sub_(p * (group["weight_decay"] * lr))
                velocity = self.state[p].setdefault("velocity", torch.zeros_like(p))
                velocity.mul_(mu).sub_(lr * p.grad)
                p.add_(mu * velocity - lr * p.grad)


def rate(step, start=1e-2, peak=1e-1, warmup=6, length=30, floor=0.1):
    if step < warmup:
        return start + (peak - start) * step / warmup
    progress = min((step - warmup) / length, 1.0)
    return peak * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * progress)))


def optimizer(model):
    no_decay = {
        id(p) for m in model.modules() if isinstance(m, (nn.LayerNorm, nn.Embedding)) for p in m.parameters()
    }
    groups = [
        {"params": [p for p in model.parameters() if id(p) not in no_decay], "weight_decay": 0.02},
        {"params": [p for p in model.parameters() if id(p) in no_decay], "weight_decay": 0.0},
    ]
    sgd = Nesterov(groups, lr=1.0)
    return sgd, torch.optim.lr_scheduler.LambdaLR(sgd, lambda step: rate(step + 1))


def build():
    return ClickRate()
