"""Next-note decoder in PyTorch: forward(notes) -> logits (N, T, 18)."""

import torch
import torch.nn.functional as F
from torch import nn


def rotary_angles(length, dim, like, base=100.0):
    """Angle of every position and pair, (T, dim / 2)."""
    pair = torch.arange(0, dim, 2, dtype=like.dtype, device=like.device)
    position = torch.arange(length, dtype=like.dtype, device=like.device)
    return torch.outer(position, base ** (-pair / dim))


def rotate(x):
    """Rotary position embedding of (N, heads, T, d)."""
    angle = rotary_angles(x.shape[-2], x.shape[-1], x)
    rotation = torch.complex(angle.cos(), angle.sin())
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * rotation).flatten(-2)


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-5):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        return self.scale * x / (x.norm(dim=-1, keepdim=True) ** 2 / x.shape[-1] + self.eps).sqrt()


class Block(nn.Module):
    def __init__(self, dim, heads, hidden):
        super().__init__()
        self.heads = heads
        self.norm1 = RMSNorm(dim)
        self.norm2 = RMSNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.out = nn.Linear(dim, dim, bias=False)
        self.up = nn.Linear(dim, 2 * hidden)
        self.down = nn.Linear(hidden, dim)

    def attend(self, x):
        n, t, d = x.shape
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q, k, v = (s.view(n, t, self.heads, -1).transpose(1, 2) for s in (q, k, v))
        mixed = F.scaled_dot_product_attention(rotate(q), rotate(k), v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(n, t, d))

    def feed_forward(self, x):
        gate, value = self.up(x).chunk(2, dim=-1)
        return self.down(F.gelu(gate) * value)

    def forward(self, x):
        x = x + self.attend(self.norm1(x))
        return x + self.feed_forward(self.norm2(x))


class MelodyModel(nn.Module):
    def __init__(self, vocab=18, dim=24, heads=4, hidden=30, depth=2):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        nn.init.normal_(self.embed.weight, std=0.5)
        self.blocks = nn.ModuleList(Block(dim, heads, hidden) for _ in range(depth))
        self.norm = RMSNorm(dim)

    def forward(self, notes):
        x = self.embed(notes.long())
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.embed.weight)


def loss(outputs, targets):
    """Label smoothing of 0.1; padding (0) in the targets does not count."""
    return F.cross_entropy(
        outputs.flatten(0, 1), targets.flatten().long(), ignore_index=0, label_smoothing=0.1
    )
