import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, n_heads, max_len):
        super().__init__()
        self.n_heads, self.d_k = n_heads, d_model // n_heads
        self.q_proj = nn.Linear(d_model, d_model)
        self.k_proj = nn.Linear(d_model, d_model)
        self.v_proj = nn.Linear(d_model, d_model)
        self.o_proj = nn.Linear(d_model, d_model)
        mask = torch.triu(torch.ones(max_len, max_len, dtype=torch.bool), diagonal=1)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, x):
        b, n, d = x.shape
        q = self.q_proj(x).view(b, self.n_heads, n, self.d_k)
        k = self.k_proj(x).view(b, self.n_heads, n, self.d_k)
        v = self.v_proj(x).view(b, self.n_heads, n, self.d_k)
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.d_k)
        attn = scores.masked_fill(self.mask[:n, :n], -1e9).softmax(dim=-1)
        y = (attn @ v).reshape(b, n, d)
        return self.o_proj(y)


class Block(nn.Module):
    def __init__(self, d_model, n_heads, max_len):
        super().__init__()
        self.norm1 = nn.LayerNorm(d_model, eps=1e-8)
        self.attention = MultiHeadAttention(d_model, n_heads, max_len)
        self.norm2 = nn.LayerNorm(d_model, eps=1e-8)
        self.linear1 = nn.Linear(d_model, 2 * d_model)
        self.linear2 = nn.Linear(2 * d_model, d_model)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.linear2(F.relu(self.linear1(self.norm2(x))))


class SASRec(nn.Module):
    def __init__(self, n_items=50, max_len=10, d_model=16, n_heads=4, n_layers=2):
        super().__init__()
        self.item_embedding = nn.Embedding(n_items, d_model, padding_idx=0)
        self.position = nn.Parameter(torch.randn(max_len, d_model) * 0.02)
        self.layers = nn.ModuleList([Block(d_model, n_heads, max_len) for _ in range(n_layers)])
        self.norm = nn.LayerNorm(d_model, eps=1e-8)
        self.head = nn.Linear(d_model, n_items, bias=False)

    def forward(self, history):
        x = self.item_embedding(history) + self.position
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def build():
    return SASRec()
