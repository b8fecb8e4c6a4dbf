"""A property of small molecules by graph attention (GAT, two layers, several heads)."""

import torch
from torch import nn
from torch.nn import functional as F


class GraphAttention(nn.Module):
    def __init__(self, features, units, heads, concat=True):
        super().__init__()
        self.concat = concat
        self.weight = nn.Parameter(torch.empty(features, heads, units))
        self.a_to = nn.Parameter(torch.empty(heads, units))
        self.a_source = nn.Parameter(torch.empty(heads, units))
        self.bias = nn.Parameter(torch.zeros(heads * units if concat else units))
        for p in (self.weight, self.a_to, self.a_source):
            nn.init.xavier_uniform_(p)

    def forward(self, x, bonds):
        h = torch.einsum("bnf,fhu->bnhu", x, self.weight)
        to = torch.einsum("bnhu,hu->bnh", h, self.a_to)
        source = torch.einsum("bnhu,hu->bnh", h, self.a_source)
        e = F.leaky_relu(to.unsqueeze(2) + source.unsqueeze(1), 0.2)
        e = e.masked_fill(bonds.unsqueeze(-1) == 0, -1e9)
        a = F.softmax(e, dim=1)
        out = torch.einsum("bijh,bjhu->bihu", a, h)
        out = out.flatten(2) if self.concat else out.mean(dim=2)
        return out + self.bias


class MoleculeGAT(nn.Module):
    def __init__(self, kinds=6, width=8):
        super().__init__()
        self.embed = nn.Embedding(kinds + 1, width)
        self.gat1 = GraphAttention(width, 6, 3)
        self.gat2 = GraphAttention(18, 10, 2, concat=False)
        self.readout = nn.Sequential(nn.Linear(10, 12), nn.SiLU(), nn.Linear(12, 1))

    def forward(self, atoms, bonds):
        x = F.elu(self.gat1(self.embed(atoms), bonds))
        x = F.elu(self.gat2(x, bonds))
        real = (atoms != 0).to(x.dtype).unsqueeze(-1)
        return self.readout((x * real).sum(1) / real.sum(1))
