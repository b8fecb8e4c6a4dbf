"""Mini Swin. Works on (B, H, W, C) throughout."""

import torch
import torch.nn.functional as F
from torch import nn

WINDOW = 4


def to_windows(x, w):
    b, h, ww, c = x.shape
    x = x.view(b, h // w, w, ww // w, w, c).permute(0, 1, 3, 2, 4, 5)
    return x.reshape(b, -1, w * w, c)  # B, n_windows, tokens, C


def from_windows(x, w, h, ww):
    b, c = x.shape[0], x.shape[-1]
    x = x.view(b, h // w, ww // w, w, w, c).permute(0, 1, 3, 2, 4, 5)
    return x.reshape(b, h, ww, c)


class WindowAttention(nn.Module):
    def __init__(self, dim, heads, res, shift):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.table = nn.Parameter(torch.empty((2 * WINDOW - 1) ** 2, heads))
        nn.init.trunc_normal_(self.table, std=0.02)
        ij = torch.cartesian_prod(torch.arange(WINDOW), torch.arange(WINDOW))
        rel = ij[:, None] - ij[None, :] + WINDOW - 1
        self.register_buffer("index", rel[..., 0] * (2 * WINDOW - 1) + rel[..., 1])
        mask = None
        if shift:
            # tokens may meet only when they were in the same un-rolled zone
            zone = torch.zeros(res)
            zone[res - WINDOW :] = 1
            zone[res - shift :] = 2
            zone = zone[:, None] * 3 + zone[None, :]
            zone = to_windows(zone[None, ..., None], WINDOW)[0, ..., 0]
            mask = torch.where(zone[:, :, None] == zone[:, None, :], 0.0, -100.0)[:, None]
        self.register_buffer("mask", mask)  # n_windows, 1, T, T

    def forward(self, x):
        b, nw, t, c = x.shape
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q, k, v = (z.view(b, nw, t, self.heads, -1).transpose(2, 3) for z in (q, k, v))
        bias = self.table[self.index].permute(2, 0, 1)
        if self.mask is not None:
            bias = bias + self.mask.to(bias.dtype)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=bias.expand(b, nw, -1, -1, -1))
        return self.proj(out.transpose(2, 3).reshape(b, nw, t, c))


class SwinBlock(nn.Module):
    def __init__(self, dim, heads, res, shift=0):
        super().__init__()
        self.shift = shift
        self.norm1 = nn.LayerNorm(dim)
        self.attn = WindowAttention(dim, heads, res, shift)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        h, w = x.shape[1:3]
        y = self.norm1(x)
        if self.shift:
            y = y.roll((-self.shift, -self.shift), (1, 2))
        y = from_windows(self.attn(to_windows(y, WINDOW)), WINDOW, h, w)
        if self.shift:
            y = y.roll((self.shift, self.shift), (1, 2))
        x = x + y
        return x + self.mlp(self.norm2(x))


class PatchMerging(nn.Module):
    def __init__(self, dim, out):
        super().__init__()
        self.norm = nn.LayerNorm(4 * dim)
        self.reduce = nn.Linear(4 * dim, out, bias=False)

    def forward(self, x):
        b, h, w, c = x.shape
        # column offset outermost, then row offset, then channel
        x = x.view(b, h // 2, 2, w // 2, 2, c).permute(0, 1, 3, 4, 2, 5).reshape(b, h // 2, w // 2, 4 * c)
        return self.reduce(self.norm(x))


class MiniSwin(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(3, 16, 2, stride=2)
        self.patch_norm = nn.LayerNorm(16)
        self.stage0 = nn.Sequential(SwinBlock(16, 2, 8), SwinBlock(16, 2, 8, shift=2))
        self.merge = PatchMerging(16, 24)
        self.stage1 = nn.Sequential(SwinBlock(24, 3, 4))
        self.norm = nn.LayerNorm(24)
        self.head = nn.Linear(24, 7)

    def forward(self, x):
        x = self.patch(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        x = self.stage0(self.patch_norm(x))
        x = self.stage1(self.merge(x))
        return self.head(self.norm(x).mean((1, 2)))


def build():
    return MiniSwin()
