"""NAFNet, small, for deblurring."""

import math

import torch
import torch.nn.functional as F
from torch import nn


def planes(x, channels=3):
    """Pictures as N, C, H, W, whichever way the loader stacked them."""
    return x if x.shape[1] == channels else x.movedim(-1, 1)


class LayerNorm2d(nn.LayerNorm):
    def forward(self, x):
        return super().forward(x.movedim(1, -1)).movedim(-1, 1)


class SimpleGate(nn.Module):
    def forward(self, x):
        a, b = x.chunk(2, dim=1)
        return a * b


class NAFBlock(nn.Module):
    def __init__(self, c, dilation=1):
        super().__init__()
        self.beta = nn.Parameter(torch.full((c,), 0.1))
        self.gamma = nn.Parameter(torch.full((c,), 0.1))
        self.spatial = nn.Sequential(
            LayerNorm2d(c, eps=1e-6),
            nn.Conv2d(c, 2 * c, 1),
            nn.Conv2d(2 * c, 2 * c, 3, padding=dilation, dilation=dilation, groups=2 * c),
            SimpleGate(),
        )
        self.sca = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(c, c))
        self.out = nn.Conv2d(c, c, 1)
        self.ffn = nn.Sequential(
            LayerNorm2d(c, eps=1e-6),
            nn.Conv2d(c, 2 * c, 1),
            SimpleGate(),
            nn.Conv2d(c, c, 1),
        )

    def forward(self, x):
        y = self.spatial(x)
        y = torch.einsum("bchw,bc->bchw", y, self.sca(y))
        x = x + self.beta.view(-1, 1, 1) * self.out(y)
        return x + self.gamma.view(-1, 1, 1) * self.ffn(x)


class NAFNet(nn.Module):
    def __init__(self, channels=3, width=8, levels=2):
        super().__init__()
        self.head = nn.Conv2d(channels, width, 3, padding=1)
        self.tail = nn.Conv2d(width, channels, 3, padding=1)
        self.encoders, self.decoders = nn.ModuleList(), nn.ModuleList()
        self.downs, self.ups = nn.ModuleList(), nn.ModuleList()
        for _ in range(levels):
            self.encoders.append(NAFBlock(width))
            self.downs.append(nn.Conv2d(width, 2 * width, 2, 2))
            width *= 2
        self.middle = nn.Sequential(NAFBlock(width, dilation=2), NAFBlock(width))
        for _ in range(levels):
            self.ups.append(nn.Sequential(nn.Conv2d(width, 2 * width, 1, bias=False), nn.PixelShuffle(2)))
            width //= 2
            self.decoders.append(NAFBlock(width))

    def forward(self, blurred):
        pictures = planes(blurred)
        x = self.head(pictures)
        skips = []
        for encoder, down in zip(self.encoders, self.downs):
            x = encoder(x)
            skips.append(x)
            x = down(x)
        x = self.middle(x)
        for up, decoder in zip(self.ups, self.decoders):
            x = decoder(up(x) + skips.pop())
        restored = pictures + self.tail(x)
        return restored if pictures is blurred else restored.movedim(1, -1)


def build():
    return NAFNet()


def restoration_loss(outputs, targets):
    outputs, targets = planes(outputs), planes(targets)
    error = outputs - targets
    psnr = (
        10 / math.log(10) * torch.log(F.mse_loss(outputs, targets, reduction="none").mean((1, 2, 3)) + 1e-8)
    )
    spectrum = torch.view_as_real(torch.fft.fft2(error)).abs().mean()
    return psnr.mean() + 0.05 * spectrum


def optimizer(params):
    params = list(params)
    groups = [
        {"params": [p for p in params if p.ndim > 1]},
        {"params": [p for p in params if p.ndim <= 1], "weight_decay": 0.0},
    ]
    opt = torch.optim.RAdam(
        groups, lr=2e-3, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.02, decoupled_weight_decay=True
    )

    def factor(step, warmup=8, decay=60, floor=0.01):
        if step < warmup:
            start = 1e-4 / 2e-3
            return start + (1 - start) * step / warmup
        progress = min(step - warmup, decay) / decay
        return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * progress))

    return opt, torch.optim.lr_scheduler.LambdaLR(opt, factor)
