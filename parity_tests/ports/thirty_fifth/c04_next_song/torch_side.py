"""SASRec-style next-song model with a tied output layer."""

import math

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attention = nn.MultiheadAttention(dim, heads, bias=False, batch_first=True)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        n = x.shape[1]
        future = torch.ones(n, n, dtype=torch.bool, device=x.device).triu(1)
        h = self.norm1(x)
        x = x + self.attention(h, h, h, attn_mask=future, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class NextSong(nn.Module):
    def __init__(self, items=40, length=12, dim=16, heads=4):
        super().__init__()
        self.scale = math.sqrt(dim)
        self.items = nn.Embedding(items, dim)
        self.positions = nn.Parameter(torch.zeros(length, dim))
        self.block = Block(dim, heads)
        self.final_norm = nn.LayerNorm(dim)

    def forward(self, session):
        x = self.items(session.long()) * self.scale + self.positions
        last = self.final_norm(self.block(x))[:, -1]
        return F.linear(last, self.items.weight.data)  # tied scores


def build():
    return NextSong()
