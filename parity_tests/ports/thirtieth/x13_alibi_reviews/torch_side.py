import math

import torch
import torch.nn.functional as F
from torch import nn

VOCAB, LENGTH, DIM, HEADS, HIDDEN, CLASSES = 60, 16, 24, 6, 32, 4


def alibi_slopes(n):
    """Press et al.: for a head count that is no power of two, interleave."""
    if math.log2(n).is_integer():
        return [2 ** (-8 * (i + 1) / n) for i in range(n)]
    m = 1 << (n.bit_length() - 1)
    return alibi_slopes(m) + alibi_slopes(2 * m)[::2][: n - m]


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.eps = eps
        self.gain = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return F.rms_norm(x, (x.shape[-1],), self.gain, self.eps)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Linear(DIM, DIM, bias=False)
        self.k = nn.Linear(DIM, DIM, bias=False)
        self.v = nn.Linear(DIM, DIM, bias=False)
        self.o = nn.Linear(DIM, DIM)

    def forward(self, x, bias):
        b, t, _ = x.shape
        q, k, v = (f(x).view(b, t, HEADS, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        return self.o(y.transpose(1, 2).reshape(b, t, DIM))


class SwiGLU(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(DIM, HIDDEN, bias=False)
        self.up = nn.Linear(DIM, HIDDEN, bias=False)
        self.down = nn.Linear(HIDDEN, DIM, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm_a = RMSNorm(DIM)
        self.attn = Attention()
        self.norm_b = RMSNorm(DIM)
        self.mlp = SwiGLU()

    def forward(self, x, bias):
        x = x + self.attn(self.norm_a(x), bias)
        return x + self.mlp(self.norm_b(x))


class ReviewClassifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCAB, DIM)
        nn.init.normal_(self.tokens.weight, std=DIM**-0.5)
        self.drop = nn.Dropout(0.1)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.norm_out = RMSNorm(DIM)
        self.classes = nn.Linear(DIM, CLASSES)
        i = torch.arange(LENGTH)
        dist = (i[:, None] - i[None, :]).abs()
        slopes = torch.tensor(alibi_slopes(HEADS), dtype=torch.float64)
        self.register_buffer("alibi", -slopes[:, None, None] * dist, persistent=False)

    def forward(self, x):
        x = x.long()
        real = x != 0
        h = self.drop(self.tokens(x) * math.sqrt(DIM))
        bias = self.alibi.to(h.dtype).masked_fill(~real[:, None, None, :], float("-inf"))
        for block in self.blocks:
            h = block(h, bias)
        h = self.norm_out(h).masked_fill(~real.unsqueeze(-1), 0.0)
        return self.classes(h.sum(1) / real.sum(1, keepdim=True))


def build():
    return ReviewClassifier()


def optimizer(params):
    params = list(params)
    return torch.optim.AdamW(
        [
            {"params": [p for p in params if p.ndim > 1], "weight_decay": 0.05},
            {"params": [p for p in params if p.ndim <= 1], "weight_decay": 0.0},
        ],
        lr=0.003,
        betas=(0.9, 0.98),
        eps=1e-10,
    )
