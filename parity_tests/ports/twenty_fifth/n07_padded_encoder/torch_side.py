import math

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def heads_first(self, x):
        b, t, d = x.shape
        return x.view(b, t, self.heads, d // self.heads).transpose(1, 2)

    def forward(self, x, pad):
        q, k, v = (self.heads_first(f(x)) for f in (self.query, self.key, self.value))
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        scores = scores.masked_fill(pad[:, None, :, None], -1e9)
        x = scores.softmax(-1) @ v
        return self.out(x.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, width, heads, hidden):
        super().__init__()
        self.ln_a = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.ln_b = nn.LayerNorm(width)
        self.ffn = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))

    def forward(self, x, pad):
        x = x + self.attention(self.ln_a(x), pad)
        h = self.ln_b(x)
        return h + self.ffn(h)


class Encoder(nn.Module):
    def __init__(self, vocabulary=50, length=16, width=16, classes=4):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Parameter(torch.randn(length, width) * 0.2)
        self.layers = nn.ModuleList([Layer(width, 2, 40), Layer(width, 2, 40)])
        self.ln = nn.LayerNorm(width)
        self.classes = nn.Linear(width, classes)

    def forward(self, ids):
        pad = ids == 0
        x = self.tokens(ids) * math.sqrt(self.tokens.embedding_dim) + self.positions
        for layer in self.layers:
            x = layer(x, pad)
        return self.classes(self.ln(x)[:, 0])


def build():
    return Encoder()
