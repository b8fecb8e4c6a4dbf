"""LISTA with momentum for mineral assays (PyTorch)."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

N_CHANNELS = 40
N_MINERALS = 56
N_ROUNDS = 5


def make_atoms():
    rng = np.random.default_rng(11)
    axis = np.arange(N_CHANNELS, dtype=np.float32)[:, None]
    table = np.zeros((N_CHANNELS, N_MINERALS), np.float32)
    for _ in range(3):
        centre, width, height = (
            rng.uniform(low, high, N_MINERALS).astype(np.float32)
            for low, high in ((0, N_CHANNELS), (0.8, 2.5), (0.3, 1.0))
        )
        table += height * np.exp(-(((axis - centre) / width) ** 2))
    return torch.from_numpy(table / np.linalg.norm(table, axis=0)).T.contiguous()


class SoftThreshold(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.raw = nn.Parameter(torch.full((n,), -3.5))

    def forward(self, x):
        theta = F.softplus(self.raw)
        return x - torch.maximum(torch.minimum(x, theta), -theta)


class LISTA(nn.Module):
    def __init__(self):
        super().__init__()
        atoms = make_atoms()
        self.register_buffer("atoms", atoms, persistent=False)
        gram = atoms @ atoms.T
        step = 1 / torch.linalg.eigvalsh(gram)[-1]
        self.mutual = nn.Linear(N_MINERALS, N_MINERALS, bias=False)
        self.encode = nn.Linear(N_CHANNELS, N_MINERALS, bias=False)
        self.encode.weight.data.copy_(step * atoms)
        self.mutual.weight.data.copy_(torch.eye(N_MINERALS) - step * gram)
        self.prox = nn.ModuleList(SoftThreshold(N_MINERALS) for _ in range(N_ROUNDS))
        self.momentum = nn.Parameter(torch.full((N_ROUNDS - 1,), 0.3))

    def unroll(self, spectrum):
        b = self.encode(spectrum)
        x_old, x = torch.zeros_like(b), self.prox[0](b)
        trail = [x]
        for prox, m in zip(self.prox[1:], self.momentum):
            z = torch.lerp(x_old, x, 1 + m)
            x_old, x = x, prox(b + self.mutual(z))
            trail.append(x)
        return torch.stack(trail)

    def forward(self, spectrum):
        return self.unroll(spectrum)[-1]


def step(model, batch, decay=0.7, l1=0.02):
    spectrum, target = batch
    trail = model.unroll(spectrum)
    weights = decay ** torch.arange(len(trail) - 1, -1, -1, dtype=trail.dtype, device=trail.device)
    supervised = weights @ (trail - target).square().sum(-1).mean(-1)
    code = trail[-1]
    fit = (spectrum - code @ model.atoms).square().sum(-1).mean()
    return supervised + fit + l1 * code.norm(p=1, dim=-1).mean()


def build():
    return LISTA()
