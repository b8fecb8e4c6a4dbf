"""Tissue tile classifier in PyTorch, input (N, 3, 16, 16)."""

import torch
import torch.nn.functional as F
from torch import nn


class RelativeBias(nn.Module):
    """Learned bias per head that depends on the offset of query and key."""

    def __init__(self, grid, heads):
        super().__init__()
        span = 2 * grid - 1
        self.table = nn.Parameter(torch.empty(span * span, heads))
        nn.init.trunc_normal_(self.table, std=0.3)
        row = torch.arange(grid).repeat_interleave(grid)
        col = torch.arange(grid).repeat(grid)
        drow = row[None, :] - row[:, None] + grid - 1
        dcol = col[None, :] - col[:, None] + grid - 1
        self.register_buffer("index", drow * span + dcol, persistent=False)

    def forward(self):
        return self.table[self.index].permute(2, 0, 1)


class BiasedAttention(nn.Module):
    def __init__(self, dim, heads, grid):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.bias = RelativeBias(grid, heads)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        n, t, d = x.shape
        qkv = self.qkv(x).view(n, t, 3, self.heads, d // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        x = F.scaled_dot_product_attention(q, k, v, attn_mask=self.bias()[None])
        return self.proj(x.transpose(1, 2).reshape(n, t, d))


class Block(nn.Module):
    def __init__(self, dim, heads, grid):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attn = BiasedAttention(dim, heads, grid)
        self.norm2 = nn.LayerNorm(dim)
        self.fc1 = nn.Linear(dim, 2 * dim)
        self.fc2 = nn.Linear(2 * dim, dim)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        h = self.fc1(self.norm2(x))
        return x + self.fc2(h * torch.sigmoid(h))


class TissueNet(nn.Module):
    def __init__(self, tile=16, patch=4, dim=24, heads=3, n_types=5):
        super().__init__()
        grid = tile // patch
        self.patches = nn.Conv2d(3, dim, patch, stride=patch)
        self.block1 = Block(dim, heads, grid)
        self.block2 = Block(dim, heads, grid)
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, n_types)

    def forward(self, tile):
        x = self.patches(tile).flatten(2).transpose(1, 2)
        x = self.block2(self.block1(x))
        return self.head(self.norm(x).mean(dim=1))
