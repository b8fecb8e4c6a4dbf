from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Config:
    vocabulary: int = 40
    length: int = 24
    width: int = 32
    heads: int = 4
    kv_heads: int = 2
    depth: int = 2
    inner: int = 56
    theta: float = 100.0
    dropout: float = 0.1
    cap: float = 12.0

    @property
    def head_size(self):
        return self.width // self.heads


class RMSNorm(nn.Module):
    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        return x * x.pow(2).mean(-1, keepdim=True).add(self.eps).rsqrt() * self.scale


class Attention(nn.Module):
    def __init__(self, c: Config):
        super().__init__()
        self.c = c
        self.wqkv = nn.Linear(c.width, (c.heads + 2 * c.kv_heads) * c.head_size, bias=False)
        self.wo = nn.Linear(c.width, c.width, bias=False)

    def turn(self, x, phase):
        """Rotates the halves of each head as real and imaginary parts."""
        z = torch.complex(*x.chunk(2, dim=-1)) * phase
        return torch.cat([z.real, z.imag], dim=-1)

    def forward(self, x, phase):
        c = self.c
        qkv = self.wqkv(x).unflatten(-1, (-1, c.head_size)).transpose(1, 2)
        q, k, v = qkv.split([c.heads, c.kv_heads, c.kv_heads], dim=1)
        q = self.turn(q, phase).unflatten(1, (c.kv_heads, -1))
        k = self.turn(k, phase)
        score = torch.einsum("bgrqd,bgkd->bgrqk", q * c.head_size**-0.5, k)
        seen = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).tril()
        attention = score.masked_fill(~seen, float("-inf")).softmax(-1)
        y = torch.einsum("bgrqk,bgkd->bqgrd", attention, v)
        return self.wo(y.flatten(2))


class SwiGLU(nn.Module):
    def __init__(self, c: Config):
        super().__init__()
        self.w13 = nn.Linear(c.width, 2 * c.inner, bias=False)
        self.w2 = nn.Linear(c.inner, c.width, bias=False)

    def forward(self, x):
        gate, up = self.w13(x).chunk(2, dim=-1)
        return self.w2(F.silu(gate) * up)


class Net(nn.Module):
    def __init__(self, c: Config = Config()):
        super().__init__()
        self.c = c
        self.wte = nn.Embedding(c.vocabulary, c.width)
        self.attention = nn.ModuleList(Attention(c) for _ in range(c.depth))
        self.mlp = nn.ModuleList(SwiGLU(c) for _ in range(c.depth))
        self.norms = nn.ModuleList(RMSNorm(c.width) for _ in range(2 * c.depth + 1))
        self.drop = nn.Dropout(c.dropout)

    def phase(self, x):
        size = self.c.head_size
        steps = torch.arange(x.shape[1], device=x.device, dtype=x.dtype)
        rates = self.c.theta ** (-torch.arange(0, size, 2, device=x.device, dtype=x.dtype) / size)
        angle = torch.outer(steps, rates)
        return torch.polar(torch.ones_like(angle), angle)

    def forward(self, notes):
        x = self.drop(self.wte(notes))
        phase = self.phase(x)
        for i, (attention, mlp) in enumerate(zip(self.attention, self.mlp)):
            x = x + self.drop(attention(self.norms[2 * i](x), phase))
            x = x + self.drop(mlp(self.norms[2 * i + 1](x)))
        logits = F.linear(self.norms[-1](x), self.wte.weight)
        return self.c.cap * torch.tanh(logits / self.c.cap)


def loss(logits, target):
    target = target.long()
    keep = target != 0
    logits, target = logits[keep], target[keep]
    entropy = F.cross_entropy(logits, target, reduction="sum")
    z = logits.logsumexp(-1).square().sum()
    return (entropy + z / 512) / max(len(target), 1)
