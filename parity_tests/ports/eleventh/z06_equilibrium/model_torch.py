"""PyTorch port of the equilibrium network."""

import torch
from torch import nn


class Cell(nn.Module):
    def __init__(self, units, damping):
        super().__init__()
        self.damping = damping
        self.weight = nn.Linear(units, units, bias=False)
        self.ln = nn.LayerNorm(units)
        nn.init.orthogonal_(self.weight.weight)

    def forward(self, z, u):
        return torch.lerp(torch.tanh(self.ln(self.weight(z) + u)), z, self.damping)


class FixedPoint(nn.Module):
    def __init__(self, cell, max_iter=6, phantom=3, tol=0.4):
        super().__init__()
        self.cell = cell
        self.max_iter, self.phantom, self.tol = max_iter, phantom, tol

    @torch.no_grad()
    def solve(self, u):
        z = torch.zeros_like(u)
        for _ in range(self.max_iter):
            nxt = self.cell(z, u)
            if torch.linalg.vector_norm(nxt - z, dim=-1).max() <= self.tol:
                break
            z = nxt
        return z

    def forward(self, u):
        z = self.solve(u)
        for _ in range(self.phantom):
            z = self.cell(z.detach(), u)
        return z


class Net(nn.Module):
    def __init__(self, features=18, units=32, classes=4):
        super().__init__()
        self.encode = nn.Linear(features, units)
        self.deq = FixedPoint(Cell(units, damping=0.7))
        self.head = nn.Sequential(nn.Linear(2 * units, 24), nn.ReLU(), nn.Linear(24, classes))

    def forward(self, x):
        u = self.encode(x)
        return self.head(torch.cat([self.deq(u), u], dim=1))
