import torch
import torch.nn.functional as F
from torch import nn


def apply_rope(x, theta=100.0):
    *_, t, d = x.shape
    inv = theta ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
    angle = torch.outer(torch.arange(t, dtype=torch.float64), inv)
    rot = torch.polar(torch.ones_like(angle), angle)
    rot = torch.view_as_complex(torch.view_as_real(rot).to(x.dtype)).to(x.device)
    z = torch.view_as_complex(x.contiguous().unflatten(-1, (-1, 2)))
    return torch.view_as_real(z * rot).flatten(-2)


class CrossAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.to_q = nn.Linear(dim, dim)
        self.to_k = nn.Linear(dim, dim, bias=False)
        self.to_v = nn.Linear(dim, dim)
        self.to_out = nn.Linear(dim, dim)
        self.logit_scale = nn.Parameter(torch.empty(heads, 1, 1).uniform_(0.5, 1.8))

    def forward(self, lat, seq, ignore):
        q, k, v = (
            p.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for p in (self.to_q(lat), self.to_k(seq), self.to_v(seq))
        )
        q = q / torch.sqrt(q.pow(2).sum(-1, keepdim=True) + 1e-6)
        k = k / torch.sqrt(k.pow(2).sum(-1, keepdim=True) + 1e-6)
        q, k = apply_rope(q) * self.logit_scale.exp(), apply_rope(k)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=~ignore[:, None, None, :], scale=1.0)
        return self.to_out(y.transpose(1, 2).flatten(2))


class Perceiver(nn.Module):
    def __init__(self, features=6, dim=16, n_latents=4, depth=2, tags=3):
        super().__init__()
        self.latents = nn.Parameter(torch.randn(1, n_latents, dim) * 0.5)
        self.inp = nn.Sequential(nn.Linear(features, dim), nn.LayerNorm(dim))
        self.cross = nn.ModuleList([CrossAttention(dim, 2) for _ in range(depth)])
        self.mlp = nn.ModuleList(
            [
                nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 2 * dim), nn.SiLU(), nn.Linear(2 * dim, dim))
                for _ in range(depth)
            ]
        )
        self.tags = nn.Linear(n_latents * dim, tags)

    def forward(self, signal, valid):
        ignore = valid < 0.5
        seq = self.inp(signal)
        lat = self.latents.expand(signal.shape[0], -1, -1)
        for cross, mlp in zip(self.cross, self.mlp):
            lat = lat + cross(lat, seq, ignore)
            lat = lat + mlp(lat)
        return self.tags(lat.reshape(lat.shape[0], -1))


def build():
    return Perceiver()
