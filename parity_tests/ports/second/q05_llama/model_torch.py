import torch
from torch import nn
from torch.nn import functional as F


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        return x / (x.square().mean(-1, keepdim=True) + self.eps).sqrt() * self.weight


def apply_rotary(x):
    # x: batch, time, ..., features; the first half is the real part, the second the imaginary one
    t, d = x.shape[1], x.shape[-1]
    freq = 10000.0 ** (-torch.arange(0, d, 2, dtype=x.dtype, device=x.device) / d)
    angle = torch.outer(torch.arange(t, dtype=x.dtype, device=x.device), freq)
    angle = angle.view(1, t, *[1] * (x.ndim - 3), d // 2)
    re, im = x.chunk(2, dim=-1)
    return torch.cat([re * angle.cos() - im * angle.sin(), im * angle.cos() + re * angle.sin()], -1)


class Attention(nn.Module):
    def __init__(self, dim, heads, kv_heads):
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, dim // heads
        self.wqkv = nn.Linear(dim, (heads + 2 * kv_heads) * self.head_dim, bias=False)
        self.wo = nn.Linear(dim, dim, bias=False)

    def forward(self, x):
        b, t, _ = x.shape
        n, d = self.kv_heads, self.head_dim
        q, k, v = self.wqkv(x).split([self.heads * d, n * d, n * d], dim=-1)
        q = apply_rotary(q.view(b, t, n, self.heads // n, d))
        k = apply_rotary(k.view(b, t, n, d))
        v = v.view(b, t, n, d)
        scores = torch.einsum("bqngd,bknd->bngqk", q, k) * d**-0.5
        future = torch.ones(t, t, dtype=torch.bool, device=x.device).triu(1)
        weights = scores.masked_fill(future, float("-inf")).softmax(-1)
        return self.wo(torch.einsum("bngqk,bknd->bqngd", weights, v).reshape(b, t, -1))


class Block(nn.Module):
    def __init__(self, dim, heads, kv_heads, hidden):
        super().__init__()
        self.attention_norm = RMSNorm(dim)
        self.attention = Attention(dim, heads, kv_heads)
        self.ffn_norm = RMSNorm(dim)
        self.w13 = nn.Linear(dim, 2 * hidden, bias=False)
        self.w2 = nn.Linear(hidden, dim, bias=False)

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        gate, up = self.w13(self.ffn_norm(x)).chunk(2, -1)
        return x + self.w2(F.silu(gate) * up)


class Transformer(nn.Module):
    def __init__(self, vocab=60, dim=32, depth=2, heads=4, kv_heads=2, hidden=88):
        super().__init__()
        self.tok_embeddings = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(Block(dim, heads, kv_heads, hidden) for _ in range(depth))
        self.norm = RMSNorm(dim)
        self.output = nn.Linear(dim, vocab, bias=False)

    def forward(self, x):
        x = self.tok_embeddings(x)
        for layer in self.layers:
            x = layer(x)
        return self.output(self.norm(x))
