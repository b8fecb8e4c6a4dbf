"""SincNet for bird song in PyTorch; frequencies in kHz."""

import torch
import torch.nn.functional as F
from torch import nn


class SincConv(nn.Module):
    def __init__(self, filters=6, size=31, rate=8.0, stride=2, min_low=0.05, min_band=0.1):
        super().__init__()
        self.rate, self.stride = rate, stride
        self.min_low, self.min_band = min_low, min_band
        self.low = nn.Parameter(torch.linspace(0.3, 2.6, filters))
        self.band = nn.Parameter(torch.full((filters,), 0.5))
        half = size // 2
        self.register_buffer("time", torch.arange(-half, half + 1) / rate, persistent=False)
        window = torch.hamming_window(size, periodic=True, dtype=torch.float64)
        self.register_buffer("window", window, persistent=False)

    def filters(self):
        low = self.min_low + self.low.abs()
        high = (low + self.min_band + self.band.abs()).clamp(max=self.rate / 2)
        low, high = low[:, None], high[:, None]
        bands = 2 * high * torch.sinc(2 * high * self.time) - 2 * low * torch.sinc(2 * low * self.time)
        width = 2 * (high - low)
        return bands / width.detach() * self.window.to(low.dtype)

    def forward(self, x):
        return F.conv1d(x, self.filters().unsqueeze(1), stride=self.stride)


class BatchNorm(nn.BatchNorm1d):
    """Keras's: epsilon 1e-3, and 0.95 of the old statistics are kept."""

    def __init__(self, channels):
        super().__init__(channels, eps=1e-3, momentum=0.05)

    def forward(self, x):
        if self.training:
            with torch.no_grad():
                var, mean = torch.var_mean(x.mean(2), dim=0, correction=0)
                self.running_mean += self.momentum * (mean - self.running_mean)
                self.running_var += self.momentum * (var - self.running_var)
            return F.batch_norm(x, None, None, self.weight, self.bias, True, 0.0, self.eps)
        return super().forward(x)


class BirdNet(nn.Module):
    def __init__(self, classes=4, filters=6, width=10):
        super().__init__()
        self.sinc = SincConv(filters)
        self.norm = nn.LayerNorm(filters, eps=1e-6)
        self.convs = nn.Sequential(
            nn.Conv1d(filters, width, 5, padding=2, bias=False),
            BatchNorm(width),
            nn.ReLU(),
            nn.Conv1d(width, width, 5, padding=2, bias=False),
            BatchNorm(width),
            nn.ReLU(),
        )
        self.head = nn.Sequential(nn.Linear(2 * width, 12), nn.Tanh(), nn.Linear(12, classes))

    def forward(self, wave):
        x = F.max_pool1d(self.sinc(wave.mT).abs().log1p(), 3)
        x = self.convs(self.norm(x.mT).mT)
        std = (x.var(dim=-1, correction=0) + 1e-5).sqrt()
        return self.head(torch.cat([x.mean(dim=-1), std], dim=1))
