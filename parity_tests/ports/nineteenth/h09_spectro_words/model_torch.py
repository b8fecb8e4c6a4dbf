"""Spoken words from log-mel spectrograms (1, time, mel band)."""

import torch
from torch import nn
from torch.nn import functional as F


class Norm(nn.BatchNorm2d):
    """Batch norm with the settings of the Keras layer, and its biased moving variance."""

    def __init__(self, channels):
        super().__init__(channels, eps=0.001, momentum=0.99)

    def forward(self, x):
        if not self.training:
            return super().forward(x)
        variance, mean = torch.var_mean(x, dim=(0, 2, 3), correction=0)
        with torch.no_grad():
            self.running_mean += self.momentum * (mean - self.running_mean)
            self.running_var += self.momentum * (variance - self.running_var)
        x = (x - mean[:, None, None]) * torch.rsqrt(variance + self.eps)[:, None, None]
        return x * self.weight[:, None, None] + self.bias[:, None, None]


class WordsNet(nn.Module):
    def __init__(self, classes=5, width=8):
        super().__init__()
        channels = [1, width, 2 * width]
        self.convs = nn.ModuleList(
            nn.Conv2d(a, b, (5, 3), padding="same", bias=False) for a, b in zip(channels, channels[1:])
        )
        self.norms = nn.ModuleList(Norm(c) for c in channels[1:])
        self.per_frame = nn.Linear(4 * 2 * width, 16)
        self.word = nn.Linear(16, classes)

    def forward(self, x):
        for conv, norm in zip(self.convs, self.norms):
            x = F.max_pool2d(F.relu(norm(conv(x))), 2)
            x = F.dropout(x, 0.15)
        x = x.permute(0, 2, 3, 1).flatten(2)
        return self.word(torch.tanh(self.per_frame(x)).mean(dim=1))
