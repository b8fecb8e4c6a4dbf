import math

import torch
from torch import nn
from torch.nn import functional as F


def timestep_embedding(timesteps, dim, max_period=10000):
    half = dim // 2
    freqs = torch.exp(
        -math.log(max_period) * torch.arange(half, dtype=timesteps.dtype, device=timesteps.device) / half
    )
    args = 1000 * timesteps[:, None] * freqs[None]
    return torch.cat([torch.sin(args), torch.cos(args)], dim=-1)


def normalization(channels):
    return nn.GroupNorm(4, channels)


class ResBlock(nn.Module):
    def __init__(self, channels, emb_channels, out_channels, dropout=0.1):
        super().__init__()
        self.in_layers = nn.Sequential(
            normalization(channels), nn.SiLU(), nn.Conv2d(channels, out_channels, 3, padding=1)
        )
        self.emb_layers = nn.Sequential(nn.SiLU(), nn.Linear(emb_channels, 2 * out_channels))
        self.out_norm = normalization(out_channels)
        self.out_layers = nn.Sequential(
            nn.SiLU(), nn.Dropout(dropout), nn.Conv2d(out_channels, out_channels, 3, padding=1)
        )
        self.skip_connection = (
            nn.Identity() if channels == out_channels else nn.Conv2d(channels, out_channels, 1)
        )

    def forward(self, x, emb):
        h = self.in_layers(x)
        scale, shift = self.emb_layers(emb)[..., None, None].chunk(2, dim=1)
        h = self.out_norm(h) * scale + shift
        return self.skip_connection(x) + self.out_layers(h)


class AttentionBlock(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = normalization(channels)
        self.qkv = nn.Conv1d(channels, 3 * channels, 1)
        self.proj_out = nn.Conv1d(channels, channels, 1)

    def forward(self, x):
        b, c, *spatial = x.shape
        x = x.reshape(b, c, -1)
        q, k, v = self.qkv(self.norm(x)).chunk(3, dim=1)
        weight = torch.softmax(torch.einsum("bct,bcs->bts", q, k) / math.sqrt(c), dim=-1)
        h = torch.einsum("bts,bcs->bct", weight, v)
        return (x + self.proj_out(h)).reshape(b, c, *spatial)


class Net(nn.Module):
    def __init__(self, in_channels=2, model_channels=8, emb=24):
        super().__init__()
        c = model_channels
        self.time_embed = nn.Sequential(nn.Linear(16, emb), nn.SiLU(), nn.Linear(emb, emb))
        self.conv_in = nn.Conv2d(in_channels, c, 3, padding=1)
        self.down = nn.ModuleList([ResBlock(c, emb, c), ResBlock(c, emb, 2 * c)])
        self.downsample = nn.Conv2d(c, c, 3, stride=2, padding=1)
        self.middle = nn.ModuleList([ResBlock(2 * c, emb, 2 * c), AttentionBlock(2 * c)])
        self.up = nn.ModuleList([ResBlock(4 * c, emb, 2 * c), ResBlock(2 * c, emb, c)])
        self.upsample = nn.Conv2d(2 * c, c, 3, padding=1)
        self.out = nn.Sequential(normalization(c), nn.SiLU(), nn.Conv2d(c, in_channels, 3, padding=1))

    def forward(self, x, t):
        emb = self.time_embed(timestep_embedding(t, 16))
        h1 = self.down[0](self.conv_in(x), emb)
        h2 = self.down[1](self.downsample(h1), emb)
        h = self.middle[1](self.middle[0](h2, emb))
        h = self.up[0](torch.cat([h, h2], dim=1), emb)
        h = self.upsample(F.interpolate(h, scale_factor=2, mode="nearest"))
        h = self.up[1](torch.cat([h, h1], dim=1), emb)
        return self.out(h)
