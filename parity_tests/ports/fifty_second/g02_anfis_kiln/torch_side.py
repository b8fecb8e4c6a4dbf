"""Takagi-Sugeno rules in two stages for brick strength and shrinkage."""

import torch
import torch.nn.functional as F
from torch import nn

LOW, MID, HIGH, ANY = 0, 1, 2, -1

FIRING = [
    (HIGH, HIGH, ANY, ANY, MID, ANY),
    (HIGH, LOW, ANY, ANY, ANY, ANY),
    (MID, MID, MID, ANY, ANY, ANY),
    (LOW, ANY, ANY, ANY, ANY, ANY),
    (LOW, HIGH, ANY, MID, ANY, ANY),
    (ANY, ANY, HIGH, ANY, ANY, HIGH),
    (ANY, ANY, LOW, ANY, ANY, HIGH),
    (ANY, ANY, ANY, HIGH, HIGH, ANY),
    (ANY, ANY, ANY, LOW, HIGH, ANY),
    (MID, ANY, ANY, ANY, LOW, LOW),
    (HIGH, ANY, MID, LOW, ANY, MID),
    (ANY, MID, ANY, ANY, ANY, LOW),
]
QUALITY = [
    (LOW, ANY, LOW, ANY),
    (LOW, ANY, HIGH, ANY),
    (HIGH, ANY, ANY, LOW),
    (HIGH, MID, ANY, HIGH),
    (ANY, LOW, MID, ANY),
    (ANY, HIGH, ANY, MID),
    (MID, MID, MID, MID),
]


class BellTerms(nn.Module):
    """log membership of generalised bells, (batch, variables, terms)"""

    def __init__(self, variables, terms=3):
        super().__init__()
        self.centres = nn.Parameter(torch.linspace(-1.5, 1.5, terms).repeat(variables, 1))
        self.widths = nn.Parameter(torch.empty(variables, terms).uniform_(0.7, 1.3))
        self.slopes = nn.Parameter(torch.empty(variables, terms).uniform_(0.8, 1.6))

    def forward(self, x):
        d = ((x.unsqueeze(-1) - self.centres) / self.widths).square() + 1e-4
        return -F.softplus(self.slopes * d.log())


class Sugeno(nn.Module):
    def __init__(self, table, units):
        super().__init__()
        table = torch.tensor(table)
        rules, variables = table.shape
        self.register_buffer("table", table, persistent=False)
        self.terms = BellTerms(variables)
        self.trust = nn.Parameter(torch.zeros(rules))
        self.kernel = nn.Parameter(0.3 * torch.randn(rules, variables, units))
        self.bias = nn.Parameter(0.3 * torch.randn(rules, units))

    def forward(self, x):
        grades = self.terms(x)
        columns = torch.arange(grades.shape[1], device=x.device)
        fired = grades[:, columns, self.table].sum(-1)
        share = (fired + self.trust).softmax(-1)
        return torch.einsum("br,bd,rdu->bu", share, x, self.kernel) + share @ self.bias


class Kiln(nn.Module):
    def __init__(self):
        super().__init__()
        self.trend = nn.Linear(6, 2, bias=False)
        self.stage1 = Sugeno(FIRING, 4)
        self.stage2 = Sugeno(QUALITY, 2)

    def forward(self, readings):
        latent = 2 * self.stage1(readings).tanh()
        return self.trend(readings) + self.stage2(latent)


def build():
    return Kiln()
