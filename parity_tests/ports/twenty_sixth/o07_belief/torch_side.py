import math

import torch
import torch.nn.functional as F
from torch import nn

WARMUP, TOTAL, BASE_LR = 8, 60, 4e-3


def schedule(t):
    warm = min((t + 1) / WARMUP, 1.0)
    progress = max(t - WARMUP, 0) / (TOTAL - WARMUP)
    return warm * 0.5 * (1 + math.cos(math.pi * progress))


class AdaBelief(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.99), eps=1e-8):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                st = self.state[p]
                if not st:
                    st["t"] = 0
                    st["m"] = torch.zeros_like(p)
                    st["s"] = torch.zeros_like(p)
                st["t"] += 1
                t, m, s = st["t"], st["m"], st["s"]
                diff = p.grad - m
                m.mul_(b1).add_(p.grad, alpha=1 - b1)
                s.mul_(b2).addcmul_(diff, diff, value=1 - b2).add_(group["eps"])
                denom = (s / (1 - b2**t)).sqrt_().add_(group["eps"])
                lr = group["lr"] * schedule(t)
                p.addcdiv_(m, denom, value=-lr / (1 - b1**t))


def make(params):
    return AdaBelief(params, lr=BASE_LR)


def dice_bce(output, target):
    bce = F.binary_cross_entropy_with_logits(output, target)
    p, t = output.sigmoid().flatten(1), target.flatten(1)
    dice = (2 * (p * t).sum(1) + 1) / (p.sum(1) + t.sum(1) + 1)
    return bce + (1 - dice).mean()


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc1 = nn.Conv2d(1, 8, 3, padding=1)
        self.enc2 = nn.Conv2d(8, 12, 3, padding=1)
        self.mid = nn.Conv2d(12, 16, 3, padding=1)
        self.dec2 = nn.Conv2d(28, 12, 3, padding=1)
        self.dec1 = nn.Conv2d(20, 8, 3, padding=1)
        self.mask = nn.Conv2d(8, 1, 1)

    def forward(self, x):
        x = x.movedim(-1, 1)
        e1 = F.relu(self.enc1(x))
        e2 = F.relu(self.enc2(F.max_pool2d(e1, 2)))
        h = F.relu(self.mid(F.max_pool2d(e2, 2)))
        h = torch.cat([F.interpolate(h, scale_factor=2, mode="nearest"), e2], dim=1)
        h = F.relu(self.dec2(h))
        h = torch.cat([F.interpolate(h, scale_factor=2, mode="nearest"), e1], dim=1)
        h = F.relu(self.dec1(h))
        return self.mask(h).movedim(1, -1)


def build():
    return UNet()
