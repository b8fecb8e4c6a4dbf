import math

import torch
from torch import nn
from torch.nn import functional as F

QUANTILES = (0.1, 0.5, 0.9)
DILATIONS = (1, 2, 4, 8)


class Gated(nn.Module):
    def __init__(self, channels, skips, dilation, residual=True):
        super().__init__()
        self.dilation = dilation
        self.both = nn.Conv1d(channels, 2 * channels, 2, dilation=dilation)
        self.skip = nn.Conv1d(channels, skips, 1)
        self.residual = nn.Conv1d(channels, channels, 1) if residual else None

    def forward(self, x):
        f, g = self.both(F.pad(x, (self.dilation, 0))).chunk(2, dim=1)
        z = f.tanh() * g.sigmoid()
        return (x if self.residual is None else x + self.residual(z)), self.skip(z)


class WaveNet(nn.Module):
    def __init__(self, channels=8, skips=12):
        super().__init__()
        self.inlet = nn.Linear(2, channels)
        self.stack = nn.ModuleList(Gated(channels, skips, d, d != DILATIONS[-1]) for d in DILATIONS)
        self.mix = nn.Linear(skips, skips)
        self.quantiles = nn.Linear(skips, len(QUANTILES))

    def forward(self, series):
        x = self.inlet(series).transpose(1, 2)
        total = 0.0
        for layer in self.stack:
            x, skip = layer(x)
            total = total + skip[:, :, -1]
        return self.quantiles(F.relu(self.mix(F.relu(total))))


class Pinball(nn.Module):
    def __init__(self, quantiles=QUANTILES):
        super().__init__()
        self.register_buffer("q", torch.tensor(quantiles, dtype=torch.float64))

    def forward(self, output, target):
        q = self.q.to(output)
        error = target.reshape(-1, 1) - output
        return torch.where(error >= 0, q * error, (q - 1) * error).mean()


def rate(step, start=0.05, peak=0.2, warmup=5, steps=40, alpha=0.1):
    if step < warmup:
        return start + (peak - start) * step / warmup
    share = min(step - warmup, steps) / steps
    return peak * ((1 - alpha) * 0.5 * (1 + math.cos(math.pi * share)) + alpha)


def optimizer(params):
    sgd = torch.optim.SGD(params, lr=1.0)
    return sgd, torch.optim.lr_scheduler.LambdaLR(sgd, rate)
