import math

import torch
from torch import nn
from torch.nn import functional as F


def timestep_embedding(t, dim):
    half = dim // 2
    freqs = torch.exp(-math.log(10000.0) * torch.arange(half, dtype=t.dtype, device=t.device) / (half - 1))
    args = t[:, None] * freqs[None]
    return torch.cat([args.sin(), args.cos()], dim=-1)


def norm(c):
    return nn.GroupNorm(4, c, eps=1e-3)


class ResBlock(nn.Module):
    def __init__(self, cin, cout, tdim):
        super().__init__()
        self.in_layers = nn.Sequential(norm(cin), nn.SiLU(), nn.Conv2d(cin, cout, 3, padding=1))
        self.emb_layers = nn.Sequential(nn.SiLU(), nn.Linear(tdim, cout))
        self.out_layers = nn.Sequential(norm(cout), nn.SiLU(), nn.Conv2d(cout, cout, 3, padding=1))
        self.skip = nn.Identity() if cin == cout else nn.Conv2d(cin, cout, 1)

    def forward(self, x, emb):
        h = self.in_layers(x) + self.emb_layers(emb)[..., None, None]
        return self.skip(x) + self.out_layers(h)


class SelfAttention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.norm = norm(c)
        self.q = nn.Conv2d(c, c, 1)
        self.k = nn.Conv2d(c, c, 1)
        self.v = nn.Conv2d(c, c, 1)
        self.proj = nn.Conv2d(c, c, 1)

    def forward(self, x):
        b, c, h, w = x.shape
        n = self.norm(x)
        q, k, v = (f(n).flatten(2) for f in (self.q, self.k, self.v))
        attn = torch.softmax(torch.bmm(q.transpose(1, 2), k) / math.sqrt(c), dim=-1)
        out = torch.bmm(v, attn.transpose(1, 2)).reshape(b, c, h, w)
        return x + self.proj(out)


class UNet(nn.Module):
    def __init__(self, ch=8, tdim=24):
        super().__init__()
        self.time_embed = nn.Sequential(nn.Linear(2 * ch, tdim), nn.SiLU(), nn.Linear(tdim, tdim))
        self.stem = nn.Conv2d(1, ch, 3, padding=1)
        self.down = nn.ModuleList([ResBlock(ch, ch, tdim), ResBlock(ch, 2 * ch, tdim)])
        self.mid = ResBlock(2 * ch, 2 * ch, tdim)
        self.attn = SelfAttention(2 * ch)
        self.up = nn.ModuleList([ResBlock(4 * ch, 2 * ch, tdim), ResBlock(3 * ch, ch, tdim)])
        self.out = nn.Sequential(norm(ch), nn.SiLU(), nn.Conv2d(ch, 1, 3, padding=1))
        self.ch = ch

    def forward(self, noisy, t):
        emb = self.time_embed(timestep_embedding(t, 2 * self.ch))
        x, skips = self.stem(noisy), []
        for block in self.down:
            x = block(x, emb)
            skips.append(x)
            x = F.avg_pool2d(x, 2)
        x = self.attn(self.mid(x, emb))
        for block in self.up:
            x = F.interpolate(x, scale_factor=2, mode="nearest")
            x = block(torch.cat((x, skips.pop()), dim=1), emb)
        return self.out(x)


def build():
    return UNet()
