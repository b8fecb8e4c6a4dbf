"""Conv-TasNet in PyTorch."""

from itertools import permutations

import torch
from torch import nn


class GlobalNorm(nn.Module):
    def __init__(self, channels, eps=1e-8):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(channels, 1))
        self.beta = nn.Parameter(torch.zeros(channels, 1))
        self.eps = eps

    def forward(self, x):
        mean = x.mean((1, 2), keepdim=True)
        variance = x.var((1, 2), keepdim=True)
        return self.gamma * (x - mean) * torch.rsqrt(variance + self.eps) + self.beta


class Block(nn.Sequential):
    def __init__(self, width, hidden, dilation):
        super().__init__(
            nn.Conv1d(width, hidden, 1),
            nn.PReLU(hidden),
            GlobalNorm(hidden),
            nn.Conv1d(hidden, hidden, 3, padding=dilation, dilation=dilation, groups=hidden),
            nn.PReLU(hidden),
            GlobalNorm(hidden),
            nn.Conv1d(hidden, width, 1),
        )

    def forward(self, x):
        return x + super().forward(x)


class Net(nn.Module):
    def __init__(self, filters=12, width=6, hidden=10, speakers=2):
        super().__init__()
        self.speakers = speakers
        self.encoder = nn.Conv1d(1, filters, 8, stride=4, bias=False)
        self.separator = nn.Sequential(
            GlobalNorm(filters),
            nn.Conv1d(filters, width, 1),
            *(Block(width, hidden, dilation) for dilation in (1, 2, 4)),
            nn.Conv1d(width, speakers * filters, 1),
            nn.Sigmoid(),
        )
        self.decoder = nn.ConvTranspose1d(filters, 1, 8, stride=4, bias=False)

    def forward(self, mixture):
        code = self.encoder(mixture.unsqueeze(1)).relu()
        masks = self.separator(code).unflatten(1, (self.speakers, -1))
        masked = (masks * code.unsqueeze(1)).flatten(0, 1)
        return self.decoder(masked).view(len(mixture), self.speakers, -1)


def snr(source, estimate):
    source = source - source.mean(-1, keepdim=True)
    estimate = estimate - estimate.mean(-1, keepdim=True)
    target = (source * estimate).sum(-1, keepdim=True) / source.square().sum(-1, keepdim=True) * source
    ratio = target.square().sum(-1) / ((estimate - target).square().sum(-1) + 1e-6)
    return 10 * torch.log10(ratio + 1e-6)


def loss(voices, sources):
    orders = list(permutations(range(voices.shape[1])))
    losses = torch.stack([-snr(sources, voices[:, order]).mean(1) for order in orders])
    return losses.mean(1).min()
