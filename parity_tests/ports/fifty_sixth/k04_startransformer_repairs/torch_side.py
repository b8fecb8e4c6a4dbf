import math

import torch
import torch.nn.functional as F
from torch import nn


class StackedAttention(nn.Module):
    """One parameter a kind of projection, (rounds, out, in)."""

    def __init__(self, n_rounds, dim, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.w_q = nn.Parameter(torch.empty(n_rounds, dim, dim))
        self.w_k = nn.Parameter(torch.empty(n_rounds, dim, dim))
        self.w_v = nn.Parameter(torch.empty(n_rounds, dim, dim))
        self.w_o = nn.Parameter(torch.empty(n_rounds, dim, dim))
        for w in self.parameters():
            nn.init.normal_(w, std=dim**-0.5)

    def forward(self, i, query, memory, valid=None):
        q = F.linear(query, self.w_q[i]).unflatten(-1, (self.n_heads, 1, -1))
        k = F.linear(memory, self.w_k[i]).unflatten(-1, (self.n_heads, -1)).transpose(-3, -2)
        v = F.linear(memory, self.w_v[i]).unflatten(-1, (self.n_heads, -1)).transpose(-3, -2)
        mask = None if valid is None else valid[:, None, None, :]
        x = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return F.linear(x.flatten(-3), self.w_o[i])


class StarEncoder(nn.Module):
    def __init__(self, n_rounds, dim, n_heads):
        super().__init__()
        self.satellite = StackedAttention(n_rounds, dim, n_heads)
        self.relay = StackedAttention(n_rounds, dim, n_heads)
        self.norms = nn.ParameterDict(
            {
                "satellite_scale": torch.ones(n_rounds, dim),
                "satellite_shift": torch.zeros(n_rounds, dim),
                "relay_scale": torch.ones(n_rounds, dim),
                "relay_shift": torch.zeros(n_rounds, dim),
            }
        )
        self.n_rounds = n_rounds

    def norm(self, x, kind, i):
        return F.layer_norm(x, x.shape[-1:], self.norms[kind + "_scale"][i], self.norms[kind + "_shift"][i])

    def forward(self, e, valid):
        b, n, d = e.shape
        h = e
        s = (e * valid.unsqueeze(-1)).sum(1) / valid.sum(1, keepdim=True)
        seen = F.pad(valid, (1, 0), value=True)
        for i in range(self.n_rounds):
            neighbours = (h.roll(1, 1), h, h.roll(-1, 1), e, s.unsqueeze(1).expand(b, n, d))
            nodes = torch.cat((s.unsqueeze(1), h), 1)
            h = self.norm(self.satellite(i, h, torch.stack(neighbours, 2)).relu(), "satellite", i)
            s = self.norm(self.relay(i, s, nodes, seen).relu(), "relay", i)
        return h, s


class RepairNotes(nn.Module):
    def __init__(self, n_words=50, max_len=14, dim=16, n_heads=2, n_rounds=2, n_codes=5):
        super().__init__()
        self.embed = nn.Embedding(n_words + 1, dim)
        rate = torch.exp(-math.log(100.0) * torch.arange(0, dim, 2, dtype=torch.float64) / dim)
        angle = torch.arange(max_len, dtype=torch.float64).unsqueeze(1) * rate
        table = torch.stack((angle.sin(), angle.cos()), -1).flatten(1).float()
        self.register_buffer("table", table, persistent=False)
        self.encoder = StarEncoder(n_rounds, dim, n_heads)
        self.classify = nn.Linear(dim, n_codes)

    def forward(self, notes):
        valid = notes > 0
        h, s = self.encoder(8.0 * self.embed(notes.long()) + self.table, valid)
        peak = h.masked_fill(~valid.unsqueeze(-1), float("-inf")).amax(1)
        return self.classify(s + peak)


def build():
    return RepairNotes()
