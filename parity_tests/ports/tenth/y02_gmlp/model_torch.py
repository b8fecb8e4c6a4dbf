import torch
from torch import nn
from torch.nn import functional as F


class SpatialGatingUnit(nn.Module):
    def __init__(self, dim, seq_len):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.proj = nn.Linear(seq_len, seq_len)
        nn.init.normal_(self.proj.weight, std=0.05)
        nn.init.ones_(self.proj.bias)
        self.register_buffer("mask", torch.ones(seq_len, seq_len).tril(), persistent=False)

    def forward(self, x):
        u, v = x.chunk(2, dim=-1)
        v = self.norm(v).transpose(1, 2)
        v = F.linear(v, self.proj.weight * self.mask, self.proj.bias)
        return u * v.transpose(1, 2)


class Block(nn.Module):
    def __init__(self, dim, hidden, seq_len, p=0.1):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.fn = nn.Sequential(
            nn.Linear(dim, hidden * 2),
            nn.GELU(),
            SpatialGatingUnit(hidden, seq_len),
            nn.Linear(hidden, dim),
            nn.Dropout(p),
        )

    def forward(self, x):
        x = self.norm(x)
        return x + self.fn(x)


class Net(nn.Module):
    def __init__(self, vocab=29, seq_len=24, dim=32, hidden=48, depth=2):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.blocks = nn.Sequential(*(Block(dim, hidden, seq_len) for _ in range(depth)))
        self.norm = nn.LayerNorm(dim)
        self.to_logits = nn.Linear(dim, vocab)

    def forward(self, tokens):
        return self.to_logits(self.norm(self.blocks(self.embed(tokens))))


def loss(output, target):
    return F.cross_entropy(output.transpose(1, 2), target.long(), ignore_index=0)
