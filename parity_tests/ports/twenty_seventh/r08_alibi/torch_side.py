import torch
import torch.nn.functional as F
from torch import nn


class CausalAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.scale = (dim // heads) ** -0.5
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.register_buffer("slopes", 2.0 ** (-8.0 * torch.arange(1, heads + 1) / heads), persistent=False)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        pos = torch.arange(n, device=x.device)
        rel = pos[None, :] - pos[:, None]
        att = (q @ k.transpose(-2, -1) + self.slopes[:, None, None] * rel) * self.scale
        att = att.masked_fill(rel > 0, float("-inf")).softmax(dim=-1)
        return self.proj((att @ v).transpose(1, 2).reshape(b, n, d))


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.ln_1 = nn.LayerNorm(dim)
        self.attn = CausalAttention(dim, heads)
        self.ln_2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.SiLU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Decoder(nn.Module):
    def __init__(self, vocab=22, dim=16, heads=4, depth=2):
        super().__init__()
        self.wte = nn.Embedding(vocab, dim)
        self.h = nn.ModuleList([Layer(dim, heads) for _ in range(depth)])
        self.ln_f = nn.LayerNorm(dim)

    def forward(self, x):
        h = self.wte(x.long()) * self.wte.embedding_dim**0.5
        for layer in self.h:
            h = layer(h)
        return F.linear(self.ln_f(h), self.wte.weight)


def build():
    return Decoder()


def smoothed_ce(prediction, target):
    return F.cross_entropy(
        prediction.flatten(0, 1), target.flatten().long(), ignore_index=0, label_smoothing=0.1
    )
