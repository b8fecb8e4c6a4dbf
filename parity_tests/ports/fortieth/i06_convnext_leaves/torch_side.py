import math

import torch
from torch import nn


class ToLast(nn.Module):
    def forward(self, x):
        return x.permute(0, 2, 3, 1)


class ToFirst(nn.Module):
    def forward(self, x):
        return x.permute(0, 3, 1, 2)


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.layer_scale = nn.Parameter(torch.full((dim, 1, 1), 0.2))
        self.f = nn.Sequential(
            nn.Conv2d(dim, dim, 7, padding=3, groups=dim),
            ToLast(),
            nn.LayerNorm(dim, eps=1e-6),
            nn.Linear(dim, 4 * dim),
            nn.GELU(),
            nn.Linear(4 * dim, dim),
            ToFirst(),
        )

    def forward(self, x):
        return torch.addcmul(x, self.f(x), self.layer_scale)


def norm2d(dim):
    return nn.Sequential(ToLast(), nn.LayerNorm(dim, eps=1e-6), ToFirst())


class LeafNet(nn.Module):
    def __init__(self, dims=(16, 24), depth=2, classes=5):
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.24, 0.33, 0.21]).view(3, 1, 1))
        self.register_buffer("std", torch.tensor([0.18, 0.24, 0.17]).view(3, 1, 1))
        self.stem = nn.Sequential(nn.Conv2d(3, dims[0], 4, 4), norm2d(dims[0]))
        self.stage1 = nn.Sequential(*(Block(dims[0]) for _ in range(depth)))
        self.down = nn.Sequential(norm2d(dims[0]), nn.Conv2d(dims[0], dims[1], 2, 2))
        self.stage2 = nn.Sequential(*(Block(dims[1]) for _ in range(depth)))
        self.head = nn.Sequential(nn.LayerNorm(dims[1], eps=1e-6), nn.Linear(dims[1], classes))

    def forward(self, x):
        x = (x.permute(0, 3, 1, 2) - self.mean) / self.std
        x = self.stage2(self.down(self.stage1(self.stem(x))))
        return self.head(x.mean((-2, -1)))


def build():
    return LeafNet()


class AdamW(torch.optim.Optimizer):
    """AdamW as in the paper's efficient form (epsilon beside the uncorrected second moment)."""

    def __init__(self, params, lr, betas=(0.9, 0.999), eps=1e-7, weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None):
        for g in self.param_groups:
            b1, b2 = g["betas"]
            for p in g["params"]:
                if p.grad is None:
                    continue
                s = self.state[p]
                if not s:
                    s["t"], s["m"], s["v"] = 0, torch.zeros_like(p), torch.zeros_like(p)
                s["t"] += 1
                p.mul_(1 - g["lr"] * g["weight_decay"])
                s["m"].lerp_(p.grad, 1 - b1)
                s["v"].lerp_(p.grad * p.grad, 1 - b2)
                lr = g["lr"] * math.sqrt(1 - b2 ** s["t"]) / (1 - b1 ** s["t"])
                p.addcdiv_(s["m"], s["v"].sqrt() + g["eps"], value=-lr)


def optimizer(params):
    params = list(params)
    vector = lambda p: p.squeeze().ndim < 2
    opt = AdamW(
        [
            {"params": [p for p in params if not vector(p)], "weight_decay": 0.05},
            {"params": [p for p in params if vector(p)]},
        ],
        lr=1.5e-3,
    )
    return opt, torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=20, eta_min=0.02 * 1.5e-3)
