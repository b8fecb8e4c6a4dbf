"""SASRec in PyTorch. Item id 0 is (left) padding."""

import math

import torch
import torch.nn.functional as F
from torch import nn

N_ITEMS = 30
MAXLEN = 14
DIM = 20
HEADS = 2
BLOCKS = 2


class ItemAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.wq = nn.Linear(dim, dim)
        self.wk = nn.Linear(dim, dim)
        self.wv = nn.Linear(dim, dim)

    def forward(self, queries, keys, valid):
        b, t, d = queries.shape

        def split(z):
            return z.view(b, t, self.heads, d // self.heads).transpose(1, 2)

        q, k, v = split(self.wq(queries)), split(self.wk(keys)), split(self.wv(keys))
        scores = q @ k.transpose(-2, -1) / math.sqrt(d // self.heads)
        causal = torch.ones(t, t, dtype=torch.bool, device=q.device).tril()
        allowed = causal & valid[:, None, None, :]
        weights = scores.masked_fill(~allowed, -1e9).softmax(dim=-1)
        weights = weights * valid[:, None, :, None]
        return (weights @ v).transpose(1, 2).reshape(b, t, d)


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.q_norm = nn.LayerNorm(dim, eps=1e-8)
        self.attn = ItemAttention(dim, heads)
        self.f_norm = nn.LayerNorm(dim, eps=1e-8)
        self.ffn1 = nn.Linear(dim, dim)
        self.ffn2 = nn.Linear(dim, dim)

    def forward(self, seq, valid):
        q = self.q_norm(seq)
        seq = q + self.attn(q, q, valid)
        h = self.f_norm(seq)
        return (h + self.ffn2(F.relu(self.ffn1(h)))) * valid.unsqueeze(-1)


class SASRec(nn.Module):
    def __init__(self):
        super().__init__()
        self.item_emb = nn.Embedding(N_ITEMS + 1, DIM)
        self.pos_emb = nn.Embedding(MAXLEN, DIM)
        self.blocks = nn.ModuleList([Block(DIM, HEADS) for _ in range(BLOCKS)])
        self.last_norm = nn.LayerNorm(DIM, eps=1e-8)

    def forward(self, x):
        x = x.long()
        valid = x != 0
        pos = torch.arange(MAXLEN, device=x.device)
        seq = (self.item_emb(x) + self.pos_emb(pos)) * DIM**0.5
        seq = seq * valid.unsqueeze(-1)
        for block in self.blocks:
            seq = block(seq, valid)
        return F.linear(self.last_norm(seq), self.item_emb.weight)


def next_item_loss(y_pred, y_true):
    y_true = y_true.long()
    return F.cross_entropy(y_pred.transpose(1, 2), y_true, ignore_index=0)


def build():
    return SASRec()
