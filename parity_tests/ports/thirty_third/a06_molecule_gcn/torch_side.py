import math

import torch
import torch.nn.functional as F
from torch import nn


def normalised_adjacency(bonds, present):
    a = bonds + torch.diag_embed(present)
    d = a.sum(-1)
    d = torch.where(d > 0, d.clamp(min=1e-9).rsqrt(), torch.zeros_like(d))
    return torch.einsum("bi,bij,bj->bij", d, a, d)


class GraphConv(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.loop = nn.Linear(cin, cout)
        self.neigh = nn.Parameter(torch.randn(cin, cout) * math.sqrt(2 / cin))

    def forward(self, h, adj):
        return F.softplus(self.loop(h) + torch.einsum("bij,bjc,cd->bid", adj, h, self.neigh))


class MoleculeNet(nn.Module):
    kinds = 6

    def __init__(self, width=16, readout=20):
        super().__init__()
        self.conv1 = GraphConv(self.kinds, width)
        self.conv2 = GraphConv(width, width)
        self.norm = nn.LayerNorm(width, eps=1e-3)
        self.gate = nn.Linear(width, 1)
        self.value = nn.Linear(width, readout)
        self.heads = nn.ModuleDict({"energy": nn.Linear(readout, 1), "toxic": nn.Linear(readout, 1)})

    def forward(self, atoms, bonds):
        present = atoms > 0
        keep = present.to(bonds.dtype)
        adj = normalised_adjacency(bonds, keep)
        h = F.one_hot(atoms.long(), self.kinds).to(bonds.dtype)
        h1 = self.conv1(h, adj) * keep[..., None]
        h2 = self.conv2(h1, adj) * keep[..., None]
        h = self.norm(h1 + h2)
        score = self.gate(h).squeeze(-1).masked_fill(~present, float("-inf"))
        pooled = (score.softmax(1).unsqueeze(1) @ self.value(h).tanh()).squeeze(1)
        return {name: head(pooled) for name, head in self.heads.items()}


def build():
    return MoleculeNet()
