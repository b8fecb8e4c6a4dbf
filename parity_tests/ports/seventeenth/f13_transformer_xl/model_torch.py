"""Transformer-XL in PyTorch."""

import math

import torch
from torch import nn
from torch.nn import functional as F


def distances(length, width, like):
    rates = 10000 ** (-torch.arange(0, width, 2, dtype=like.dtype, device=like.device) / width)
    angles = torch.outer(torch.arange(length - 1, -1, -1, dtype=like.dtype, device=like.device), rates)
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


class RelativeAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.position = nn.Linear(width, width, bias=False)
        self.content_bias = nn.Parameter(0.2 * torch.randn(heads, width // heads))
        self.position_bias = nn.Parameter(0.2 * torch.randn(heads, width // heads))
        self.out = nn.Linear(width, width, bias=False)

    def shift(self, scores):
        batch, heads, here, seen = scores.shape
        padded = F.pad(scores, (1, 0)).view(batch, heads, seen + 1, here)
        return padded[:, :, 1:].reshape(batch, heads, here, seen)

    def forward(self, x, context):
        here, seen, width = x.shape[1], context.shape[1], x.shape[2]
        q, k, v = (y.unflatten(-1, (self.heads, -1)) for y in self.qkv(context).chunk(3, dim=-1))
        q = q[:, -here:]
        r = self.position(distances(seen, width, x)).unflatten(-1, (self.heads, -1))
        by_content = torch.einsum("bihd,bjhd->bhij", q + self.content_bias, k)
        by_position = torch.einsum("bihd,jhd->bhij", q + self.position_bias, r)
        scores = (by_content + self.shift(by_position)) / math.sqrt(width // self.heads)
        later = torch.ones(here, seen, dtype=torch.bool, device=x.device).triu(1)
        weights = scores.masked_fill(later, -1e9).softmax(-1)
        return self.out(torch.einsum("bhij,bjhd->bihd", weights, v).flatten(2))


class Layer(nn.Module):
    def __init__(self, width, heads, hidden=48, dropout=0.1):
        super().__init__()
        self.attention = RelativeAttention(width, heads)
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.feed_forward = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, width))
        self.dropouts = [nn.Dropout(dropout), nn.Dropout(dropout)]

    def forward(self, x, context):
        x = self.norms[0](x + self.dropouts[0](self.attention(x, context)))
        return self.norms[1](x + self.dropouts[1](self.feed_forward(x)))


class Net(nn.Module):
    def __init__(self, vocabulary=24, width=24, heads=3, depth=2, segment=4, memory=6):
        super().__init__()
        self.segment, self.memory = segment, memory
        self.embedding = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList([Layer(width, heads) for _ in range(depth)])
        self.out = nn.Linear(width, vocabulary)

    def forward(self, tokens):
        memories = [None] * len(self.layers)
        outputs = []
        for x in self.embedding(tokens).split(self.segment, dim=1):
            for i, layer in enumerate(self.layers):
                context = x if memories[i] is None else torch.cat([memories[i], x], dim=1)
                memories[i] = context[:, -self.memory :]
                x = layer(x, context)
            outputs.append(x)
        return self.out(torch.cat(outputs, dim=1))
