import math

import torch
from torch import nn
from torch.nn import functional as F


def token_loss(output, target):
    return F.cross_entropy(output.flatten(0, 1), target.flatten().long(), ignore_index=0)


class CausalAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, d // self.heads).unbind(2)
        s = torch.einsum("bihe,bjhe->bhij", q, k) / math.sqrt(d // self.heads)
        later = torch.ones(t, t, dtype=torch.bool, device=x.device).triu(1)
        w = s.masked_fill(later, float("-inf")).softmax(-1)
        return self.proj(torch.einsum("bhij,bjhe->bihe", w, v).reshape(b, t, d))


class Net(nn.Module):
    def __init__(self, notes=18, steps=12, dim=16, heads=4):
        super().__init__()
        self.wte = nn.Embedding(notes, dim)
        self.wpe = nn.Parameter(torch.empty(steps, dim).uniform_(-0.05, 0.05))
        nn.init.uniform_(self.wte.weight, -0.05, 0.05)
        self.ln1, self.ln2, self.ln3 = (nn.LayerNorm(dim, eps=1e-3) for _ in range(3))
        self.att = CausalAttention(dim, heads)
        self.mlp = nn.Sequential(nn.Linear(dim, 32), nn.GELU(), nn.Linear(32, dim))

    def forward(self, tokens):
        h = math.sqrt(self.wte.embedding_dim) * self.wte(tokens) + self.wpe
        h = h + self.att(self.ln1(h))
        h = h + self.mlp(self.ln2(h))
        return F.linear(self.ln3(h), self.wte.weight)
