import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class ShiftedSoftplus(nn.Module):
    def forward(self, x):
        return F.softplus(x) - math.log(2.0)


class GaussianSmearing(nn.Module):
    def __init__(self, start=0.0, stop=3.0, n=12):
        super().__init__()
        self.register_buffer("offset", torch.linspace(start, stop, n), persistent=False)
        self.coeff = -0.5 / ((stop - start) / n) ** 2

    def forward(self, d):
        return torch.exp(self.coeff * (d.unsqueeze(-1) - self.offset) ** 2)


class Interaction(nn.Module):
    def __init__(self, width, rbf):
        super().__init__()
        self.filter = nn.Sequential(nn.Linear(rbf, width), ShiftedSoftplus(), nn.Linear(width, width))
        self.in2f = nn.Linear(width, width, bias=False)
        self.out = nn.Sequential(nn.Linear(width, width), ShiftedSoftplus(), nn.Linear(width, width))

    def forward(self, h, rbf, cut):
        w = self.filter(rbf) * cut.unsqueeze(-1)
        return h + self.out(torch.einsum("bijf,bjf->bif", w, self.in2f(h)))


class SchNet(nn.Module):
    def __init__(self, width=10, rbf=12, cutoff=3.0):
        super().__init__()
        self.cutoff = cutoff
        self.embedding = nn.Embedding(3, width)
        self.smearing = GaussianSmearing(0.0, cutoff, rbf)
        self.interactions = nn.ModuleList([Interaction(width, rbf) for _ in range(2)])
        self.atomwise = nn.Sequential(nn.Linear(width, 8), ShiftedSoftplus(), nn.Linear(8, 1))

    def forward(self, species, positions):
        diff = positions.unsqueeze(2) - positions.unsqueeze(1)
        eye = torch.eye(positions.shape[1], dtype=positions.dtype, device=positions.device)
        d = torch.sqrt((diff**2).sum(-1) + eye)
        cut = 0.5 * (torch.cos(math.pi * d / self.cutoff) + 1) * (d < self.cutoff) * (1 - eye)
        rbf = self.smearing(d)
        h = self.embedding(species)
        for layer in self.interactions:
            h = layer(h, rbf, cut)
        return self.atomwise(h).sum(1)


def _pair(t, a, b):
    return (t[a], t[b]) if isinstance(t, dict) else t


def training_step(model, batch):
    x, y = batch
    species, positions = _pair(x, "species", "positions")
    energy, forces = _pair(y, "energy", "forces")
    positions = positions.clone().requires_grad_(True)
    e = model(species, positions)
    f = -torch.autograd.grad(e.sum(), positions, retain_graph=True)[0]
    return F.mse_loss(e, energy) + 10.0 * F.mse_loss(f, forces)


def build():
    return SchNet()
