import math

import torch
from torch import nn


class LN2d(nn.LayerNorm):
    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class CNBlock(nn.Module):
    def __init__(self, dim, init=0.3):
        super().__init__()
        self.block = nn.Sequential(
            nn.Conv2d(dim, dim, 5, padding=2, groups=dim),
            LN2d(dim, eps=1e-6),
            nn.Conv2d(dim, 4 * dim, 1),
            nn.GELU(),
            nn.Conv2d(4 * dim, dim, 1),
        )
        self.layer_scale = nn.Parameter(torch.full((dim, 1, 1), init))

    def forward(self, x):
        return x + self.layer_scale * self.block(x)


class MiniConvNeXt(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Sequential(nn.Conv2d(3, 8, 2, 2), LN2d(8, eps=1e-6)),
            CNBlock(8),
            nn.Sequential(LN2d(8, eps=1e-6), nn.Conv2d(8, 12, 2, 2)),
            nn.Sequential(CNBlock(12), CNBlock(12)),
        )
        self.classifier = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), LN2d(12, eps=1e-6), nn.Flatten(1), nn.Linear(12, 4)
        )

    def forward(self, x):
        return self.classifier(self.features(x.permute(0, 3, 1, 2)))


def build():
    return MiniConvNeXt()


class VelocitySGD(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum):
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                v = self.state[p].setdefault("velocity", torch.zeros_like(p))
                v.mul_(group["momentum"]).sub_(p.grad, alpha=group["lr"])
                p.add_(v)
        return loss


def optimizer(params, warm=4, total=16):
    opt = VelocitySGD(params, lr=0.1, momentum=0.9)

    def factor(step):
        if step < warm:
            return (step + 1) / warm
        return 0.5 * (1 + math.cos(math.pi * (step - warm) / (total - warm)))

    return opt, torch.optim.lr_scheduler.LambdaLR(opt, factor)
