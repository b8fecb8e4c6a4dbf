import torch
import torch.nn.functional as F
from torch import nn


class Residual(nn.Module):
    def __init__(self, channels, scale=0.2):
        super().__init__()
        self.scale = scale
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1),
            nn.PReLU(channels),
            nn.Conv2d(channels, channels, 3, padding=1),
        )

    def forward(self, x):
        return torch.add(x, self.body(x), alpha=self.scale)


class Upscaler(nn.Module):
    def __init__(self, channels=12, blocks=2):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, channels, 5, padding=2), nn.PReLU(channels))
        self.trunk = nn.Sequential(*(Residual(channels) for _ in range(blocks)))
        self.tail = nn.Sequential(
            nn.Conv2d(channels, 24, 3, padding=1),
            nn.PixelShuffle(2),
            nn.Conv2d(6, 1, 3, padding=1),
        )

    def forward(self, picture):
        x = self.stem(picture)
        x = self.tail(x + self.trunk(x))
        x = x + F.interpolate(picture, scale_factor=2)
        return x.squeeze(1)


def loss(outputs, targets):
    return torch.hypot(targets - outputs, torch.full_like(outputs, 1e-2)).mean()
