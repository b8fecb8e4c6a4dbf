"""PyTorch port of the lifting network, channels first."""

import torch
from torch import nn
from torch.nn import functional as F


class Neighbours(nn.Module):
    """A circular convolution of two taps."""

    def __init__(self, channels, ahead):
        super().__init__()
        self.pad = (0, 1) if ahead else (1, 0)
        self.taps = nn.Conv1d(channels, channels, kernel_size=2)

    def forward(self, x):
        return torch.tanh(self.taps(F.pad(x, self.pad, mode="circular")))


class Level(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.P = Neighbours(channels, ahead=True)
        self.U = Neighbours(channels, ahead=True)
        self.level = nn.Parameter(torch.full((channels,), -2.0))

    def shrink(self, d):
        threshold = F.softplus(self.level.detach()).unsqueeze(-1)
        return d - d.clamp(-threshold, threshold)

    def forward(self, x):
        even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)
        detail = odd - self.P(even)
        return even + self.U(detail), self.shrink(detail)


class Net(nn.Module):
    def __init__(self, inputs=2, channels=6, levels=3, classes=4):
        super().__init__()
        self.mix = nn.Conv1d(inputs, channels, 1)
        self.levels = nn.ModuleList(Level(channels) for _ in range(levels))
        self.drop = nn.Dropout(0.1)
        self.mlp = nn.Sequential(nn.Linear((levels + 1) * channels, 32), nn.ReLU(), nn.Linear(32, classes))

    @staticmethod
    def energy(detail):
        return detail.square().mean(dim=-1).add(1e-2).log()

    def forward(self, x):
        h = self.mix(x.transpose(1, 2))
        found = []
        for level in self.levels:
            h, detail = level(h)
            found.append(self.energy(detail))
        return self.mlp(self.drop(torch.cat([*found, h.mean(dim=-1)], dim=1)))
