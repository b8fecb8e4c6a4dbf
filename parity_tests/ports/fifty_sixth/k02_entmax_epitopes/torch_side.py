import math

import torch
from torch import nn


class _Entmax15(torch.autograd.Function):
    @staticmethod
    def forward(ctx, z):
        z = z - z.amax(-1, keepdim=True)
        top = z.sort(dim=-1, descending=True).values
        k = torch.arange(1, z.shape[-1] + 1, dtype=z.dtype, device=z.device)
        m = top.cumsum(-1) / k
        spread = (top * top).cumsum(-1) - k * m * m
        tau = m - ((1 - spread) / k).clamp(min=0).sqrt()
        size = (tau <= top).sum(-1, keepdim=True)
        root = (z - tau.gather(-1, size - 1)).clamp(min=0)
        ctx.save_for_backward(root)
        return root.square()

    @staticmethod
    def backward(ctx, grad):
        (root,) = ctx.saved_tensors
        g = grad * root
        return g - root * (g.sum(-1, keepdim=True) / root.sum(-1, keepdim=True))


def entmax15(scores):
    return _Entmax15.apply(scores / 2)


class GrooveAttention(nn.Module):
    def __init__(self, dim, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.to_q = nn.Linear(dim, dim)
        self.to_k = nn.Linear(dim, dim, bias=False)
        self.to_v = nn.Linear(dim, dim, bias=False)
        self.to_out = nn.Linear(dim, dim)

    def forward(self, x, context):
        q = self.to_q(x).unflatten(-1, (self.n_heads, -1))
        k = self.to_k(context).unflatten(-1, (self.n_heads, -1))
        v = self.to_v(context).unflatten(-1, (self.n_heads, -1))
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[-1])
        return self.to_out(torch.einsum("bhqk,bkhd->bqhd", entmax15(scores), v).flatten(2))


class EpitopeNet(nn.Module):
    def __init__(self, n_residues=21, peptide_len=11, groove_len=24, dim=16, n_heads=2, n_hidden=12):
        super().__init__()
        self.embed = nn.Embedding(n_residues, dim)
        self.pos_peptide = nn.Parameter(0.02 * torch.randn(peptide_len, dim))
        self.pos_groove = nn.Parameter(0.02 * torch.randn(groove_len, dim))
        self.cross = GrooveAttention(dim, n_heads)
        self.norm = nn.LayerNorm(dim, eps=1e-5)
        self.pool = nn.Linear(dim, 1, bias=False)
        self.head = nn.Sequential(nn.Linear(dim, n_hidden), nn.ELU(), nn.Linear(n_hidden, 1))
        self.scale = math.sqrt(dim)

    def forward(self, peptide, groove):
        p = self.scale * self.embed(peptide.long()) + self.pos_peptide
        g = self.scale * self.embed(groove.long()) + self.pos_groove
        p = self.norm(p + self.cross(p, g))
        logits = self.pool(p).squeeze(-1).masked_fill(peptide == 0, -100.0)
        return self.head((entmax15(logits).unsqueeze(1) @ p).squeeze(1))


def build():
    return EpitopeNet()
