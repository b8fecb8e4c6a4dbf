"""Hash-grid field of an aquifer's salinity."""

import math

import torch
from torch import nn


class GridEncoding(nn.Module):
    resolutions = (4, 7, 12, 20)

    def __init__(self, log2_slots=9, features=3):
        super().__init__()
        self.slots = 1 << log2_slots
        self.features = nn.Embedding(len(self.resolutions) * self.slots, features)
        nn.init.uniform_(self.features.weight, -0.3, 0.3)

    def address(self, x, y, z, res):
        if (res + 1) ** 3 <= self.slots:
            return (x * (res + 1) + y) * (res + 1) + z
        return (x ^ (y * 2654435761) ^ (z * 805459861)) & (self.slots - 1)

    def forward(self, p):
        encoded = []
        for i, res in enumerate(self.resolutions):
            q = p * res
            low = q.detach().floor()
            f = (q - low).unsqueeze(-1)
            x, y, z = (torch.stack([c, c + 1], -1) for c in low.long().unbind(-1))
            at = self.address(x[:, :, None, None], y[:, None, :, None], z[:, None, None, :], res)
            cube = self.features(at + i * self.slots)
            face = torch.lerp(cube[:, 0], cube[:, 1], f[:, 0, None, None])
            edge = torch.lerp(face[:, 0], face[:, 1], f[:, 1, None])
            encoded.append(torch.lerp(edge[:, 0], edge[:, 1], f[:, 2]))
        return torch.cat(encoded, -1)


class SeasonalLinear(nn.Module):
    def __init__(self, inp, out, seasons=4):
        super().__init__()
        self.linear = nn.Linear(inp, out)
        self.shift = nn.Embedding(seasons, out)
        self.scale = nn.Embedding(seasons, out)

    def forward(self, x, season):
        y = self.linear(x)
        return torch.addcmul(y + self.shift(season), y, self.scale(season)).relu()


class SalinityField(nn.Module):
    def __init__(self, width=32, octaves=3):
        super().__init__()
        self.encoding = GridEncoding()
        self.octaves = octaves
        self.inp = SeasonalLinear(4 * 3 + 6 * octaves, width)
        self.mid = SeasonalLinear(width, width)
        self.out = nn.Linear(width, 1)

    def waves(self, p):
        angle = (
            p.unsqueeze(1)
            * (math.pi * 2.0 ** torch.arange(self.octaves, device=p.device, dtype=p.dtype))[:, None]
        )
        return torch.stack([angle.sin(), angle.cos()], dim=2).flatten(1)

    def forward(self, position, season):
        season = season.long()
        h = self.inp(torch.cat([self.encoding(position), self.waves(position)], -1), season)
        h = h + self.mid(h, season)
        return self.out(h)


def build():
    return SalinityField()
