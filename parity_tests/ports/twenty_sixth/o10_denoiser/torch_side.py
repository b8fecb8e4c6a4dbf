import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

STEPS, DIM = 100, 16
ALPHA_BAR = np.cumprod(1.0 - np.linspace(1e-3, 0.05, STEPS))


def timestep_embedding(t, dtype):
    half = DIM // 2
    freqs = torch.exp(torch.arange(half, dtype=dtype) * (-math.log(1e4) / (half - 1)))
    ang = torch.outer(t.to(dtype), freqs)
    return torch.cat([ang.sin(), ang.cos()], dim=1)


class FilmBlock(nn.Module):
    def __init__(self, c_in, c_out):
        super().__init__()
        self.conv = nn.Conv2d(c_in, c_out, 3, padding=1)
        self.gn = nn.GroupNorm(4, c_out)
        self.film = nn.Linear(32, 2 * c_out)

    def forward(self, h, emb):
        h = self.gn(self.conv(h))
        scale, shift = self.film(emb)[:, :, None, None].chunk(2, dim=1)
        return F.silu(h + h * scale + shift)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(DIM, 32), nn.SiLU(), nn.Linear(32, 32), nn.SiLU())
        self.down = FilmBlock(1, 12)
        self.shrink = nn.Conv2d(12, 16, 3, stride=2)
        self.mid = FilmBlock(16, 16)
        self.grow = nn.ConvTranspose2d(16, 12, 4, stride=2, padding=1)
        self.up = FilmBlock(24, 12)
        self.eps = nn.Conv2d(12, 1, 3, padding=1)

    def forward(self, x0, noise, t):
        x0, noise = x0.permute(0, 3, 1, 2), noise.permute(0, 3, 1, 2)
        abar = torch.as_tensor(ALPHA_BAR, dtype=x0.dtype)[t].view(-1, 1, 1, 1)
        xt = abar.sqrt() * x0 + (1 - abar).sqrt() * noise
        emb = self.time(timestep_embedding(t, x0.dtype))
        skip = self.down(xt, emb)
        h = self.shrink(F.pad(skip, (0, 1, 0, 1)))
        h = self.grow(self.mid(h, emb))
        h = self.up(torch.cat([h, skip], dim=1), emb)
        return self.eps(h).permute(0, 2, 3, 1)


def build():
    return Denoiser()
