from functools import partial

import torch
from torch import nn
from torch.nn import functional as F

LayerNorm = partial(nn.LayerNorm, eps=1e-6)


class SpatialGatingUnit(nn.Module):
    def __init__(self, dim, seq_len):
        super().__init__()
        self.norm = LayerNorm(dim // 2)
        self.proj = nn.Linear(seq_len, seq_len)
        nn.init.normal_(self.proj.weight, std=1e-3)
        nn.init.ones_(self.proj.bias)

    def forward(self, x):
        content, gate = x.chunk(2, dim=-1)
        return content * self.proj(self.norm(gate).mT).mT


class GatedMLPBlock(nn.Module):
    def __init__(self, dim, hidden, seq_len, dropout):
        super().__init__()
        self.norm = LayerNorm(dim)
        self.fc1 = nn.Linear(dim, 2 * hidden)
        self.sgu = SpatialGatingUnit(2 * hidden, seq_len)
        self.drop = nn.Dropout(dropout)
        self.fc2 = nn.Linear(hidden, dim)

    def forward(self, x):
        return x + self.fc2(self.drop(self.sgu(F.silu(self.fc1(self.norm(x))))))


class GMLP(nn.Module):
    def __init__(self, tokens=30, seq_len=12, dim=12, hidden=16, depth=2, classes=4):
        super().__init__()
        self.embed = nn.Embedding(tokens, dim)
        self.blocks = nn.Sequential(*(GatedMLPBlock(dim, hidden, seq_len, 0.1) for _ in range(depth)))
        self.head = nn.ModuleDict(
            {"norm": LayerNorm(dim), "drop": nn.Dropout(0.2), "out": nn.Linear(dim, classes)}
        )

    def forward(self, text):
        x = self.head["norm"](self.blocks(self.embed(text)))
        return self.head["out"](self.head["drop"](torch.mean(x, dim=1)))
