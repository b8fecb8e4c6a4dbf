import torch
import torch.nn.functional as F
from torch import nn


class RelAttention(nn.Module):
    def __init__(self, dim, heads, max_distance):
        super().__init__()
        self.heads, self.max_distance = heads, max_distance
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.proj = nn.Linear(dim, dim)
        self.key_table = nn.Embedding(2 * max_distance + 1, dim // heads)
        self.value_table = nn.Embedding(2 * max_distance + 1, dim // heads)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        r = torch.arange(t, device=x.device)
        rel = (r.unsqueeze(0) - r.unsqueeze(1)).clamp(
            -self.max_distance, self.max_distance
        ) + self.max_distance
        scores = q @ k.transpose(-1, -2)
        q_by_pos = q.permute(2, 0, 1, 3).reshape(t, b * self.heads, -1)
        by_pos = q_by_pos @ self.key_table(rel).transpose(1, 2)
        scores = scores + by_pos.view(t, b, self.heads, t).permute(1, 2, 0, 3)
        scores = scores * (d // self.heads) ** -0.5
        future = torch.ones(t, t, dtype=torch.bool, device=x.device).triu(1)
        w = F.softmax(scores.masked_fill(future, float("-inf")), dim=-1)
        ctx = w @ v
        w_by_pos = w.permute(2, 0, 1, 3).reshape(t, b * self.heads, t)
        ctx = ctx + (w_by_pos @ self.value_table(rel)).view(t, b, self.heads, -1).permute(1, 2, 0, 3)
        return self.proj(ctx.transpose(1, 2).reshape(b, t, d))


class Layer(nn.Module):
    def __init__(self, dim, heads, max_distance):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attn = RelAttention(dim, heads, max_distance)
        self.norm2 = nn.LayerNorm(dim)
        self.ff = nn.Sequential(nn.Linear(dim, 2 * dim), nn.ReLU(inplace=True), nn.Linear(2 * dim, dim))

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.ff(self.norm2(x))


class RelLM(nn.Module):
    def __init__(self, vocab=30, dim=20, heads=2, max_distance=4, depth=2):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList([Layer(dim, heads, max_distance) for _ in range(depth)])
        self.norm = nn.LayerNorm(dim)
        self.lm_head = nn.Linear(dim, vocab, bias=False)
        self.lm_head.weight = self.embed.weight

    def forward(self, x):
        h = self.embed(x.long())
        for layer in self.layers:
            h = layer(h)
        return self.lm_head(self.norm(h))


def build():
    return RelLM()
