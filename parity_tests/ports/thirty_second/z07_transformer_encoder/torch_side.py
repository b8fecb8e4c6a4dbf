import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class PreNormBlock(nn.Module):
    def __init__(self, dim, heads, mlp_dim, p=0.1):
        super().__init__()
        self.norm_a = nn.LayerNorm(dim, eps=1e-6)
        self.attn = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.norm_m = nn.LayerNorm(dim, eps=1e-6)
        self.mlp = nn.Sequential(nn.Linear(dim, mlp_dim), nn.GELU(), nn.Linear(mlp_dim, dim))
        self.drop_a = nn.Dropout(p)
        self.drop_m = nn.Dropout(p)

    def forward(self, x, pad):
        h = self.norm_a(x)
        x = x + self.drop_a(self.attn(h, h, h, key_padding_mask=pad, need_weights=False)[0])
        return x + self.drop_m(self.mlp(self.norm_m(x)))


class TransformerClassifier(nn.Module):
    def __init__(self, n_tokens=64, max_len=18, dim=16, n_classes=4):
        super().__init__()
        self.tok = nn.Embedding(n_tokens, dim)
        self.pos = nn.Parameter(0.02 * torch.randn(max_len, dim))
        self.blocks = nn.ModuleList(PreNormBlock(dim, 4, 32) for _ in range(2))
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.out = nn.Linear(dim, n_classes)
        self.scale = math.sqrt(dim)

    def forward(self, ids):
        ids = ids.long()
        pad = ids == 0
        x = self.tok(ids) * self.scale + self.pos
        for blk in self.blocks:
            x = blk(x, pad)
        x = self.norm(x).masked_fill(pad[..., None], 0.0)
        return self.out(x.sum(1) / (~pad).sum(1, keepdim=True))


def build():
    return TransformerClassifier()


def loss(outputs, targets):
    return F.cross_entropy(outputs, targets.long(), label_smoothing=0.1)
