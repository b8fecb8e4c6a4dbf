import math

import torch
import torch.nn.functional as F
from torch import nn


def fourier(x, n_bands=3):
    freqs = math.pi * torch.pow(2.0, torch.arange(n_bands, dtype=x.dtype, device=x.device))
    a = torch.einsum("bpc,f->bpcf", x, freqs).flatten(2)
    return torch.cat([x, a.sin(), a.cos()], dim=-1)


class PreNormMLP(nn.Sequential):
    def __init__(self, dim):
        super().__init__(
            nn.LayerNorm(dim, eps=1e-3), nn.Linear(dim, 2 * dim), nn.SiLU(), nn.Linear(2 * dim, dim)
        )


class PerceiverClassifier(nn.Module):
    def __init__(self, dim=24, n_latents=6, n_heads=6, n_classes=4, depth=2):
        super().__init__()
        self.depth = depth
        self.point_proj = nn.Linear(3 + 3 * 3 * 2, dim)
        self.latents = nn.Parameter(torch.randn(1, n_latents, dim) * 0.2)

        self.cross_q_ln = nn.LayerNorm(dim, eps=1e-3)
        self.cross_kv_ln = nn.LayerNorm(dim, eps=1e-3)
        self.cross_attn = nn.MultiheadAttention(dim, n_heads, batch_first=True)
        self.cross_mlp = PreNormMLP(dim)

        self.self_ln = nn.LayerNorm(dim, eps=1e-3)
        self.self_attn = nn.MultiheadAttention(dim, n_heads, batch_first=True)
        self.self_mlp = PreNormMLP(dim)

        self.to_logits = nn.Sequential(nn.LayerNorm(dim, eps=1e-3), nn.Linear(dim, n_classes))

    def forward(self, pts):
        data = self.cross_kv_ln(self.point_proj(fourier(pts)))
        lat = self.latents.expand(pts.shape[0], -1, -1)
        for _ in range(self.depth):  # weights shared between the iterations
            lat = lat + self.cross_attn(self.cross_q_ln(lat), data, data, need_weights=False)[0]
            lat = lat + self.cross_mlp(lat)
            h = self.self_ln(lat)
            lat = lat + self.self_attn(h, h, h, need_weights=False)[0]
            lat = lat + self.self_mlp(lat)
        return self.to_logits(lat.mean(1))


def build():
    return PerceiverClassifier()


def loss(outputs, targets):
    return F.cross_entropy(outputs, targets.long().flatten())
