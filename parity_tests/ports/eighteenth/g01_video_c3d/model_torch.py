import math

import torch
from torch import nn


class AdamW(torch.optim.Optimizer):
    """AdamW in the form of the Adam paper's last paragraph of section 2 (epsilon hat)."""

    def __init__(self, params, lr, betas=(0.9, 0.999), eps=1e-7, weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["t"] = 0
                    state["m"] = torch.zeros_like(p)
                    state["v"] = torch.zeros_like(p)
                state["t"] += 1
                t = state["t"]
                p.mul_(1 - group["lr"] * group["weight_decay"])
                state["m"].mul_(b1).add_(p.grad, alpha=1 - b1)
                state["v"].mul_(b2).addcmul_(p.grad, p.grad, value=1 - b2)
                alpha = group["lr"] * math.sqrt(1 - b2**t) / (1 - b1**t)
                p.addcdiv_(state["m"], state["v"].sqrt() + group["eps"], value=-alpha)


class Stage(nn.Module):
    def __init__(self, cin, cout, kernel, pool, groups):
        super().__init__()
        self.conv = nn.Conv3d(cin, cout, kernel, padding=tuple(k // 2 for k in kernel))
        self.norm = nn.GroupNorm(groups, cout, eps=1e-3)
        self.act = nn.SiLU()
        self.pool = nn.MaxPool3d(pool) if pool else nn.Identity()

    def forward(self, x):
        return self.pool(self.act(self.norm(self.conv(x))))


class C3D(nn.Module):
    def __init__(
        self,
        widths=(8, 12, 16),
        kernels=((3, 3, 3), (3, 3, 3), (3, 1, 1)),
        pools=((1, 2, 2), (2, 2, 2), None),
        groups=4,
        hidden=24,
        classes=4,
    ):
        super().__init__()
        chans = [1, *widths]
        self.stages = nn.ModuleList(
            Stage(a, b, k, p, groups) for a, b, k, p in zip(chans, widths, kernels, pools)
        )
        self.head = nn.Sequential(nn.Linear(widths[-1], hidden), nn.ReLU(), nn.Linear(hidden, classes))

    def forward(self, clip):
        x = clip / 127.5 - 1.0
        for stage in self.stages:
            x = stage(x)
        return self.head(x.mean(dim=(2, 3, 4)))


def build():
    return C3D()


def make_optimizer(model, peak=2e-3, warmup=5, total=35, wd=0.05):
    decay = [p for p in model.parameters() if p.ndim > 1]
    rest = [p for p in model.parameters() if p.ndim <= 1]
    opt = AdamW([{"params": decay, "weight_decay": wd}, {"params": rest, "weight_decay": 0.0}], lr=peak)

    def factor(step):
        if step < warmup:
            return step / warmup
        done = min(step - warmup, total - warmup) / (total - warmup)
        return 0.5 * (1 + math.cos(math.pi * done))

    return opt, torch.optim.lr_scheduler.LambdaLR(opt, factor)
