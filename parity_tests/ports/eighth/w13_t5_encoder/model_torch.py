import math

import torch
from torch import nn
from torch.nn import functional as F


def relative_bucket(offset, num_buckets, max_distance):
    num_buckets //= 2
    base = num_buckets if offset > 0 else 0
    n, max_exact = abs(offset), num_buckets // 2
    if n < max_exact:
        return base + n
    log = math.log(n / max_exact) / math.log(max_distance / max_exact)
    return base + min(max_exact + int(log * (num_buckets - max_exact)), num_buckets - 1)


class T5Layer(nn.Module):
    def __init__(self, d_model, n_heads, d_ff, p):
        super().__init__()
        self.n_heads = n_heads
        self.ln1 = nn.RMSNorm(d_model, eps=1e-6)
        self.qkv = nn.Linear(d_model, 3 * d_model, bias=False)
        self.proj = nn.Linear(d_model, d_model, bias=False)
        self.ln2 = nn.RMSNorm(d_model, eps=1e-6)
        self.wi = nn.Linear(d_model, 2 * d_ff, bias=False)
        self.wo = nn.Linear(d_ff, d_model, bias=False)
        self.dropout = nn.Dropout(p)

    def forward(self, x, attn_bias):
        b, t, d = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, self.n_heads, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, attn_mask=attn_bias, scale=1.0)
        x = x + self.dropout(self.proj(a.transpose(1, 2).reshape(b, t, d)))
        gate, up = self.wi(self.ln2(x)).chunk(2, dim=-1)
        return x + self.dropout(self.wo(F.gelu(gate, approximate="tanh") * up))


class Net(nn.Module):
    def __init__(self, vocab=50, d_model=32, n_heads=4, d_ff=48, n_layers=2, max_len=16, n_classes=3):
        super().__init__()
        self.embed = nn.Embedding(vocab, d_model)
        self.rel_bias = nn.Embedding(16, n_heads)
        self.layers = nn.ModuleList(T5Layer(d_model, n_heads, d_ff, 0.1) for _ in range(n_layers))
        self.ln_f = nn.RMSNorm(d_model, eps=1e-6)
        self.fc = nn.Linear(d_model, n_classes)
        table = [[relative_bucket(key - query, 16, 32) for key in range(max_len)] for query in range(max_len)]
        self.register_buffer("table", torch.tensor(table), persistent=False)

    def forward(self, tokens):
        pad = tokens == 0
        bias = self.rel_bias(self.table).permute(2, 0, 1).unsqueeze(0)
        bias = bias.masked_fill(pad[:, None, None, :], float("-inf"))
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x, bias)
        x = self.ln_f(x).masked_fill(pad.unsqueeze(-1), 0.0)
        return self.fc(x.sum(1) / (~pad).sum(1, keepdim=True))
