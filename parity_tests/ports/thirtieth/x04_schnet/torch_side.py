"""SchNet on padded batches."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

MAX_Z, FEATS, RBF, CUTOFF = 10, 16, 12, 4.0


class ShiftedSoftplus(nn.Module):
    def forward(self, x):
        return torch.logaddexp(x, torch.zeros_like(x)) - math.log(2.0)


class Interaction(nn.Module):
    def __init__(self):
        super().__init__()
        self.filter = nn.Sequential(
            nn.Linear(RBF, FEATS), ShiftedSoftplus(), nn.Linear(FEATS, FEATS), ShiftedSoftplus()
        )
        self.lin_in = nn.Linear(FEATS, FEATS, bias=False)
        self.lin_mid = nn.Linear(FEATS, FEATS)
        self.lin_out = nn.Linear(FEATS, FEATS)
        self.act = ShiftedSoftplus()

    def forward(self, x, rbf, weight):
        w = self.filter(rbf) * weight.unsqueeze(-1)
        h = torch.einsum("bijf,bjf->bif", w, self.lin_in(x))
        return x + self.lin_out(self.act(self.lin_mid(h)))


class SchNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(MAX_Z, FEATS)
        self.interactions = nn.ModuleList(Interaction() for _ in range(2))
        self.atomwise = nn.Sequential(
            nn.Linear(FEATS, FEATS // 2), ShiftedSoftplus(), nn.Linear(FEATS // 2, 1)
        )
        self.atom_ref = nn.Embedding(MAX_Z, 1)
        nn.init.zeros_(self.atom_ref.weight)
        self.register_buffer("centres", torch.linspace(0.0, CUTOFF, RBF, dtype=torch.float64))

    def forward(self, z, pos):
        z = z.long()
        n = z.shape[1]
        real = z > 0
        dist = (pos.unsqueeze(2) - pos.unsqueeze(1)).pow(2).sum(-1).add(1e-12).sqrt()
        gamma = 0.5 * ((RBF - 1) / CUTOFF) ** 2
        rbf = torch.exp(-gamma * (dist.unsqueeze(-1) - self.centres.to(dist.dtype)) ** 2)
        pair = real.unsqueeze(2) & real.unsqueeze(1) & ~torch.eye(n, dtype=torch.bool, device=z.device)
        pair = pair & (dist < CUTOFF)
        weight = torch.cos(dist * (math.pi / CUTOFF)).add(1.0).mul(0.5).masked_fill(~pair, 0.0)

        x = self.embedding(z)
        for block in self.interactions:
            x = block(x, rbf, weight)
        e = self.atomwise(x) + self.atom_ref(z)
        return e.masked_fill(~real.unsqueeze(-1), 0.0).sum(1)


def build():
    return SchNet()
