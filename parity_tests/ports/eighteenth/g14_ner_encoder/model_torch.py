import math

import torch
from torch import nn
from torch.nn import functional as F


class EncoderLayer(nn.Module):
    def __init__(self, dim, heads, inner, p):
        super().__init__()
        self.self_attn = nn.MultiheadAttention(dim, heads, dropout=p, batch_first=True)
        self.dropout1 = nn.Dropout(p)
        self.norm1 = nn.LayerNorm(dim, eps=1e-6)
        self.ff = nn.Sequential(nn.Linear(dim, inner), nn.GELU(), nn.Linear(inner, dim), nn.Dropout(p))
        self.norm2 = nn.LayerNorm(dim, eps=1e-6)

    def forward(self, x, key_padding_mask):
        a, _ = self.self_attn(x, x, x, key_padding_mask=key_padding_mask, need_weights=False)
        x = self.norm1(x + self.dropout1(a))
        return self.norm2(x + self.ff(x))


class Tagger(nn.Module):
    def __init__(self, vocab=50, length=12, dim=16, heads=2, inner=24, depth=2, tags=5, p=0.1):
        super().__init__()
        self.scale = math.sqrt(dim)
        self.word = nn.Embedding(vocab, dim)
        self.position = nn.Parameter(torch.empty(length, dim))
        nn.init.normal_(self.position, std=0.02)
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.dropout = nn.Dropout(p)
        self.encoder = nn.ModuleList([EncoderLayer(dim, heads, inner, p) for _ in range(depth)])
        self.classifier = nn.Linear(dim, tags)

    def forward(self, tokens):
        tokens = tokens.long()
        pad = tokens == 0
        x = self.dropout(self.norm(self.word(tokens) * self.scale + self.position))
        for layer in self.encoder:
            x = layer(x, key_padding_mask=pad)
        return self.classifier(x)


def build():
    return Tagger()


def token_loss(output, target):
    return F.cross_entropy(output.flatten(0, 1), target.flatten().long(), ignore_index=-1)
