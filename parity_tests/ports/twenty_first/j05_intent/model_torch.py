import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, width, heads, hidden):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))

    def forward(self, x, visible):
        b, t, c = x.shape
        qkv = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, c // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, attn_mask=visible)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.norm2(x))


class Net(nn.Module):
    def __init__(self, vocab=50, length=14, width=32, intents=6):
        super().__init__()
        self.width = width
        self.token = nn.Embedding(vocab, width)
        self.position = nn.Parameter(0.02 * torch.randn(1, length, width))
        self.blocks = nn.ModuleList([Block(width, 4, 48) for _ in range(2)])
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Linear(width, intents)

    def forward(self, ids):
        real = ids.ne(0)
        x = self.token(ids) * self.width**0.5 + self.position
        for block in self.blocks:
            x = block(x, real[:, None, None, :])
        x = self.norm(x).masked_fill(~real.unsqueeze(-1), float("-inf"))
        return self.head(x.amax(dim=1))
