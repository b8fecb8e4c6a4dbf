"""Graphormer with spatial and three-dimensional attention bias."""

import math

import torch
import torch.nn.functional as F
from torch import nn

NUM_TYPES, MAX_NODES, NUM_SPATIAL = 12, 14, 8


class GaussianLayer(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.mul = nn.Embedding(NUM_TYPES * NUM_TYPES, 1)
        self.add = nn.Embedding(NUM_TYPES * NUM_TYPES, 1)
        self.mu = nn.Parameter(torch.empty(k).uniform_(0, 3))
        self.sigma = nn.Parameter(torch.empty(k).uniform_(0, 3))
        nn.init.ones_(self.mul.weight)
        nn.init.zeros_(self.add.weight)

    def forward(self, d, pair):
        d = self.mul(pair) * d.unsqueeze(-1) + self.add(pair)
        sigma = self.sigma.abs() + 1e-2
        return torch.exp(-0.5 * ((d - self.mu) / sigma) ** 2) / (math.sqrt(2 * math.pi) * sigma)


class AttentionBias(nn.Module):
    def __init__(self, heads, k):
        super().__init__()
        self.heads = heads
        self.gbf = GaussianLayer(k)
        self.proj = nn.Sequential(nn.Linear(k, k), nn.Mish(), nn.Linear(k, heads))
        self.spatial_pos = nn.Embedding(NUM_SPATIAL, heads)
        self.graph_token_distance = nn.Parameter(torch.randn(heads) * 0.3)

    def forward(self, atoms, hops, pos):
        b, n = atoms.shape
        pair = atoms.unsqueeze(2) * NUM_TYPES + atoms.unsqueeze(1)
        d = (pos.unsqueeze(2) - pos.unsqueeze(1)).norm(dim=-1)
        inner = (self.spatial_pos(hops) + self.proj(self.gbf(d, pair))).permute(0, 3, 1, 2)
        bias = self.graph_token_distance.view(1, -1, 1, 1).repeat(b, 1, n + 1, n + 1)
        bias[:, :, 1:, 1:] = inner
        pad = F.pad(atoms.eq(0), (1, 0), value=False)
        return bias.masked_fill(pad[:, None, None, :], float("-inf"))


class EncoderLayer(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.ln1 = nn.LayerNorm(d)
        self.qkv = nn.Linear(d, 3 * d)
        self.out = nn.Linear(d, d)
        self.ln2 = nn.LayerNorm(d)
        self.ffn = nn.Sequential(nn.Linear(d, 2 * d), nn.Mish(), nn.Linear(2 * d, d))

    def forward(self, x, bias):
        b, n, d = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        x = x + self.out(a.transpose(1, 2).reshape(b, n, d))
        return x + self.ffn(self.ln2(x))


class Graphormer(nn.Module):
    def __init__(self, d=48, heads=6, k=16, depth=3):
        super().__init__()
        self.bias = AttentionBias(heads, k)
        self.graph_token = nn.Parameter(torch.randn(1, 1, d) * 0.1)
        self.atom_encoder = nn.Embedding(NUM_TYPES, d)
        self.degree_encoder = nn.Embedding(MAX_NODES, d)
        self.layers = nn.ModuleList(EncoderLayer(d, heads) for _ in range(depth))
        self.final_ln = nn.LayerNorm(d)
        self.pooler = nn.Linear(d, d)
        self.head = nn.Linear(d, 1)

    def forward(self, atoms, hops, positions):
        atoms, hops = atoms.long(), hops.long()
        degree = hops.eq(1).sum(-1)
        h = self.atom_encoder(atoms) + self.degree_encoder(degree)
        h = torch.cat([self.graph_token.expand(len(h), -1, -1), h], dim=1)
        bias = self.bias(atoms, hops, positions)
        for layer in self.layers:
            h = layer(h, bias)
        h = self.final_ln(h)[:, 0]
        return self.head(torch.tanh(self.pooler(h)))


def build():
    return Graphormer()
