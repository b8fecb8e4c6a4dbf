"""R-GCN on supplier networks."""

import torch
import torch.nn.functional as F
from torch import nn


class RGCN(nn.Module):
    def __init__(self, inp, out, relations=3, bases=2):
        super().__init__()
        self.own = nn.Linear(inp, out)
        self.bases = nn.Parameter(torch.randn(bases, inp, out) / inp**0.5)
        self.mix = nn.Parameter(0.7 * torch.randn(relations, bases))

    def forward(self, h, adj):
        degree = adj.sum(-1, keepdim=True).clamp(min=1)
        neighbours = (adj / degree) @ h.unsqueeze(1)
        per_basis = torch.einsum("nrid,rb->nbid", neighbours, self.mix)
        return self.own(h) + torch.einsum("nbid,bdu->niu", per_basis, self.bases)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = RGCN(width, width)
        self.norm = nn.LayerNorm(width, eps=1e-3)

    def forward(self, h, adj, present):
        return h + F.elu(self.norm(self.conv(h, adj))) * present


class SupplierRisk(nn.Module):
    def __init__(self, width=20, pooled=16):
        super().__init__()
        self.sector = nn.Embedding(7, 6)
        self.project = nn.Linear(11, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(3))
        self.value = nn.Linear(width, pooled)
        self.gate = nn.Linear(width, pooled)
        self.head = nn.Sequential(nn.Linear(width + pooled, 16), nn.ELU(), nn.Linear(16, 1))

    def forward(self, shares, firms, sector):
        sector = sector.long()
        present = (sector > 0).to(firms.dtype).unsqueeze(-1)
        h = F.elu(self.project(torch.cat([firms, self.sector(sector)], -1)))
        for block in self.blocks:
            h = block(h, shares, present)
        gated = torch.sigmoid(self.gate(h)) * torch.tanh(self.value(h))
        pooled = torch.einsum("nid,nio->nd", gated, present) * present.sum(1).rsqrt()
        return self.head(torch.cat([h.select(1, 0), pooled], -1))


def build():
    return SupplierRisk()
