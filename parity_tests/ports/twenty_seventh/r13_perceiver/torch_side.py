import torch
from torch import nn


def feed_forward(dim):
    return nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))


class CrossAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm_q = nn.LayerNorm(dim)
        self.norm_kv = nn.LayerNorm(dim)
        self.attn = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.ff = feed_forward(dim)

    def forward(self, latents, context, pad):
        latents = self.norm_q(latents)
        context = self.norm_kv(context)
        out, _ = self.attn(latents, context, context, key_padding_mask=pad, need_weights=False)
        latents = latents + out
        return latents + self.ff(latents)


class SelfAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.attn = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.ff = feed_forward(dim)

    def forward(self, latents):
        h = self.norm(latents)
        latents = latents + self.attn(h, h, h, need_weights=False)[0]
        return latents + self.ff(latents)


class Perceiver(nn.Module):
    def __init__(self, f=6, dim=16, n_latents=5, repeats=2):
        super().__init__()
        self.repeats = repeats
        self.embed = nn.Linear(f, dim)
        self.latents = nn.Parameter(0.5 * torch.randn(n_latents, dim))
        self.cross = CrossAttention(dim, 2)
        self.process = SelfAttention(dim, 4)
        self.final_norm = nn.LayerNorm(dim)
        self.out = nn.Linear(dim, 2)

    def forward(self, mask, tokens):
        ctx = self.embed(tokens)
        pad = mask < 0.5
        lat = self.latents.expand(tokens.shape[0], -1, -1)
        for _ in range(self.repeats):
            lat = self.process(self.cross(lat, ctx, pad))
        return self.out(self.final_norm(lat.mean(dim=1)))


def build():
    return Perceiver()
