import math

import torch
from torch import nn
from torch.nn import functional as F


class ShiftedSoftplus(nn.Module):
    def forward(self, x):
        return F.softplus(x) - math.log(2)


class ContinuousFilter(nn.Module):
    def __init__(self, width, gaussians):
        super().__init__()
        self.filter = nn.Sequential(
            nn.Linear(gaussians, width), ShiftedSoftplus(), nn.Linear(width, width), ShiftedSoftplus()
        )
        self.to_messages = nn.Linear(width, width, bias=False)
        self.update = nn.Sequential(nn.Linear(width, width), ShiftedSoftplus(), nn.Linear(width, width))

    def forward(self, h, rbf, envelope):
        messages = torch.einsum("bij,bijf,bjf->bif", envelope, self.filter(rbf), self.to_messages(h))
        return h + self.update(messages)


class SchNet(nn.Module):
    def __init__(self, width=24, gaussians=20, cutoff=4.0, blocks=3, species=10):
        super().__init__()
        self.cutoff = cutoff
        offsets = torch.linspace(0, cutoff, gaussians)
        self.coefficient = -0.5 / (cutoff / (gaussians - 1)) ** 2
        self.register_buffer("offsets", offsets, persistent=False)
        self.embedding = nn.Embedding(species, width)
        self.atomref = nn.Embedding(species, 1)
        self.blocks = nn.ModuleList(ContinuousFilter(width, gaussians) for _ in range(blocks))
        self.readout = nn.Sequential(nn.Linear(width, 12), ShiftedSoftplus(), nn.Linear(12, 1))

    def forward(self, z, positions):
        z = z.long()
        real = z.ne(0)
        delta = positions[:, :, None] - positions[:, None]
        distance = delta.pow(2).sum(-1).add(1e-10).sqrt()
        rbf = torch.exp(self.coefficient * (distance[..., None] - self.offsets) ** 2)

        same = torch.eye(z.shape[1], dtype=torch.bool, device=z.device)
        linked = real[:, :, None] & real[:, None] & ~same & (distance < self.cutoff)
        envelope = torch.cos(distance * (math.pi / self.cutoff)).add(1).mul(0.5).masked_fill(~linked, 0)

        h = self.embedding(z)
        for block in self.blocks:
            h = block(h, rbf, envelope)
        energy = self.readout(h) + self.atomref(z)
        return energy.masked_fill(~real[..., None], 0).sum(1)
