import torch
import torch.nn as nn
import torch.nn.functional as F


class CrossRead(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.h = heads
        self.to_q = nn.Linear(d, d)
        self.to_kv = nn.Linear(d, 2 * d)
        self.proj = nn.Linear(d, d)

    def split(self, t):
        return t.unflatten(-1, (self.h, -1)).transpose(1, 2)

    def forward(self, q, ctx, pad):
        k, v = self.to_kv(ctx).chunk(2, -1)
        allowed = ~pad[:, None, None, :]
        o = F.scaled_dot_product_attention(
            self.split(self.to_q(q)), self.split(k), self.split(v), attn_mask=allowed
        )
        return self.proj(o.transpose(1, 2).flatten(2))


class SharedBlock(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.n1 = nn.LayerNorm(d, eps=1e-3)
        self.att = nn.MultiheadAttention(d, heads, batch_first=True)
        self.ff = nn.Sequential(
            nn.LayerNorm(d, eps=1e-3), nn.Linear(d, 2 * d), nn.GELU(approximate="tanh"), nn.Linear(2 * d, d)
        )

    def forward(self, z):
        n = self.n1(z)
        z = z + self.att(n, n, n, need_weights=False)[0]
        return z + self.ff(z)


class TicketReader(nn.Module):
    def __init__(self, vocab=25, length=12, d=12, n_lat=3, heads=2):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.pos = nn.Parameter(torch.randn(1, length, d) * 0.05)
        self.lat = nn.Parameter(torch.randn(1, n_lat, d) * 0.05)
        self.norm_tok = nn.LayerNorm(d, eps=1e-3)
        self.norm_lat = nn.LayerNorm(d, eps=1e-3)
        self.read = CrossRead(d, heads)
        self.block = SharedBlock(d, heads)
        self.head = nn.Linear(n_lat * d, 3)

    def forward(self, x):
        tokens = self.norm_tok(self.emb(x.long()) + self.pos)
        z = self.lat.expand(len(x), -1, -1)
        z = z + self.read(self.norm_lat(z), tokens, x.eq(0))
        z = self.block(self.block(z))
        return self.head(z.flatten(1))


def build():
    return TicketReader()
