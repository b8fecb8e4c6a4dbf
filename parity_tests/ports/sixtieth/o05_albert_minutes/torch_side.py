"""ALBERT for council minutes."""

import torch
import torch.nn.functional as F
from torch import nn

EPS = 1e-12


class Embeddings(nn.Module):
    def __init__(self, vocab, length, size, hidden):
        super().__init__()
        self.word = nn.Embedding(vocab, size)
        self.segment = nn.Embedding(2, size)
        self.position = nn.Parameter(0.02 * torch.randn(length, size))
        self.norm = nn.LayerNorm(size, eps=EPS)
        self.up = nn.Linear(size, hidden)

    def forward(self, tokens, segments):
        x = self.word(tokens) + self.segment(segments) + self.position[: tokens.shape[1]]
        return self.up(self.norm(x))


class Block(nn.Module):
    def __init__(self, hidden, heads, inner):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.proj = nn.Linear(hidden, hidden)
        self.norm1 = nn.LayerNorm(hidden, eps=EPS)
        self.mlp = nn.Sequential(
            nn.Linear(hidden, inner), nn.GELU(approximate="tanh"), nn.Linear(inner, hidden)
        )
        self.norm2 = nn.LayerNorm(hidden, eps=EPS)

    def forward(self, x, mask):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = self.norm1(x + self.proj(y.transpose(1, 2).reshape(b, t, d)))
        return self.norm2(x + self.mlp(x))


class Albert(nn.Module):
    def __init__(self, vocab=60, length=20, size=12, hidden=32, heads=2, inner=64, depth=4, groups=2):
        super().__init__()
        self.depth = depth
        self.embeddings = Embeddings(vocab, length, size, hidden)
        self.shared = nn.ModuleList(Block(hidden, heads, inner) for _ in range(groups))
        self.mlm_transform = nn.Sequential(
            nn.Linear(hidden, size), nn.GELU(approximate="tanh"), nn.LayerNorm(size, eps=EPS)
        )
        self.decoder = nn.Linear(size, vocab)
        self.decoder.weight = self.embeddings.word.weight
        self.sop = nn.Sequential(nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 2))

    def forward(self, tokens, segments):
        tokens, segments = tokens.long(), segments.long()
        x = self.embeddings(tokens, segments)
        mask = tokens.ne(0)[:, None, None, :]
        for i in range(self.depth):
            x = self.shared[i % len(self.shared)](x, mask)
        return {"mlm": self.decoder(self.mlm_transform(x)), "order": self.sop(x[:, 0])}


def mlm_loss(outputs, targets):
    targets = targets.long()
    each = F.cross_entropy(outputs.transpose(1, 2), targets, ignore_index=-1, reduction="none")
    return (each.sum(1) / targets.ge(0).sum(1)).mean()


def build():
    return Albert()
