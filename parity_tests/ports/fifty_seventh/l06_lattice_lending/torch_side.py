"""Calibrated lattices for lending (PyTorch)."""

import torch
import torch.nn as nn
import torch.nn.functional as F

KNOTS = [
    [4.0, 4.5, 5.0, 5.5, 6.0, 7.0],
    [0.0, 1.0, 3.0, 7.0, 15.0, 40.0],
    [0.0, 0.15, 0.3, 0.5, 0.8, 1.5],
    [0.0, 0.1, 0.3, 0.6, 0.9, 1.0],
    [-20.0, -5.0, -1.0, 1.0, 5.0, 20.0],
]
TRENDS = [1, 1, -1, 0, 0]
GROUPS = [[0, 2, 5], [1, 3, 4], [2, 4, 5], [0, 1, 3]]


class PiecewiseLinear(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("knots", torch.tensor(KNOTS), persistent=False)
        self.register_buffer("trend", torch.tensor(TRENDS)[:, None], persistent=False)
        n, k = self.knots.shape
        self.delta = nn.Parameter(torch.randn(n, k - 1) * 0.3)
        self.base = nn.Parameter(torch.full((n,), -1.0))

    def heights(self):
        delta = torch.where(self.trend == 0, self.delta, self.trend * F.softplus(self.delta))
        return torch.cat([self.base[:, None], delta], dim=1).cumsum(dim=1)

    def forward(self, x):
        heights = self.heights()
        x = x.T.contiguous()
        right = torch.searchsorted(self.knots, x).clamp(1, self.knots.shape[1] - 1)
        x0, x1 = self.knots.gather(1, right - 1), self.knots.gather(1, right)
        y0, y1 = heights.gather(1, right - 1), heights.gather(1, right)
        return torch.sigmoid(torch.lerp(y0, y1, (x - x0) / (x1 - x0))).T


class LatticeEnsemble(nn.Module):
    """All lattices at once: the table is folded along one direction after the other."""

    def __init__(self, groups):
        super().__init__()
        self.register_buffer("groups", torch.tensor(groups), persistent=False)
        self.tables = nn.ParameterList(nn.Parameter(torch.randn(2 ** len(g)) * 0.7) for g in groups)

    def forward(self, row):
        sides = row[:, self.groups]
        value = torch.stack(list(self.tables)).expand(len(row), -1, -1)
        for side in sides.unbind(-1):
            low, high = value.chunk(2, dim=-1)
            value = torch.lerp(low, high, side.unsqueeze(-1))
        return value.squeeze(-1)


class LendingModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.lattices = LatticeEnsemble(GROUPS)
        self.curves = PiecewiseLinear()
        self.purpose_score = nn.Embedding(7, 1)
        self.head = nn.Linear(len(GROUPS), 1)

    def forward(self, firm, purpose):
        score = torch.sigmoid(self.purpose_score(purpose.long()))
        row = torch.cat([self.curves(firm), score], dim=1)
        return self.head(self.lattices(row).tanh())


def build():
    return LendingModel()
