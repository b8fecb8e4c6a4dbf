"""Gated graph network for solubility."""

import torch
from torch import nn


class GGNN(nn.Module):
    def __init__(self, features=6, bonds=3, hidden=14, steps=3):
        super().__init__()
        self.steps = steps
        self.embed = nn.Sequential(nn.Linear(features, hidden), nn.Tanh())
        self.kernel = nn.Parameter(torch.empty(bonds, hidden, hidden))
        self.bias = nn.Parameter(torch.zeros(hidden))
        self.cell = nn.GRUCell(hidden, hidden)
        self.gate = nn.Linear(2 * hidden, hidden)
        self.value = nn.Linear(hidden, hidden)
        self.head = nn.Sequential(nn.Linear(hidden, 10), nn.ReLU(), nn.Linear(10, 1))
        nn.init.xavier_uniform_(self.kernel)

    def forward(self, atoms, bonds, real):
        b, n, _ = atoms.shape
        h = h0 = self.embed(atoms)
        for _ in range(self.steps):
            # first transform each atom for each bond type, then gather along the bonds
            z = h.unsqueeze(1) @ self.kernel  # (B, E, N, H)
            m = torch.matmul(bonds, z).sum(1) + self.bias
            h = self.cell(m.reshape(b * n, -1), h.reshape(b * n, -1)).view(b, n, -1)
        r = torch.sigmoid(self.gate(torch.cat((h, h0), -1))) * torch.tanh(self.value(h))
        g = r.masked_fill(real.unsqueeze(-1) == 0, 0.0).sum(1)
        return self.head(g)


def build():
    return GGNN()
