import math

import torch
import torch.nn.functional as F
from torch import nn

VOCAB, LENGTH, DIM, HEADS, FFN = 40, 12, 32, 2, 32


class SwiGLU(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.w1 = nn.Linear(dim, hidden, bias=False)
        self.w2 = nn.Linear(hidden, dim, bias=False)
        self.w3 = nn.Linear(dim, hidden, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class DecoderLayer(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.ln1 = nn.RMSNorm(DIM, eps=1e-6)
        self.attn = nn.MultiheadAttention(DIM, HEADS, dropout=p, batch_first=True)
        self.ln2 = nn.RMSNorm(DIM, eps=1e-6)
        self.mlp = SwiGLU(DIM, FFN)
        self.drop = nn.Dropout(p)

    def forward(self, x, future):
        h = self.ln1(x)
        h, _ = self.attn(h, h, h, attn_mask=future, need_weights=False)
        x = x + self.drop(h)
        return x + self.drop(self.mlp(self.ln2(x)))


class TinyLM(nn.Module):
    def __init__(self, layers=2, p=0.1):
        super().__init__()
        self.wte = nn.Embedding(VOCAB, DIM)
        self.wpe = nn.Parameter(torch.randn(LENGTH, DIM) * 0.05)
        self.layers = nn.ModuleList(DecoderLayer(p) for _ in range(layers))
        self.norm = nn.RMSNorm(DIM, eps=1e-6)
        self.register_buffer("future", torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1), persistent=False)

    def forward(self, tokens):
        n = tokens.shape[1]
        x = self.wte(tokens) * math.sqrt(DIM) + self.wpe[:n]
        for layer in self.layers:
            x = layer(x, self.future[:n, :n])
        return F.linear(self.norm(x), self.wte.weight)


def next_token_loss(logits, targets):
    targets = targets.long()
    nll = F.cross_entropy(logits.transpose(1, 2), targets, ignore_index=0, reduction="none")
    return (nll.sum(1) / (targets != 0).sum(1)).mean()


def build():
    return TinyLM()
