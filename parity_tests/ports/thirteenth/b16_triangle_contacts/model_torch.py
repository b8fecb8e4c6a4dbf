"""Protein contacts by triangle multiplication, after the Keras model."""

import torch
import torch.nn.functional as F
from torch import nn

REACH, APART = 3, 3


class Triangle(nn.Module):
    def __init__(self, dim, channels):
        super().__init__()
        self.norm = nn.LayerNorm(dim, eps=1e-3)
        self.sides = nn.Linear(dim, 2 * channels)
        self.gates = nn.Linear(dim, 2 * channels)
        self.inner = nn.LayerNorm(channels, eps=1e-3)
        self.out = nn.Linear(channels, dim)
        self.gate = nn.Linear(dim, dim)

    def forward(self, pair):
        x = self.norm(pair)
        a, b = (self.sides(x) * self.gates(x).sigmoid()).permute(0, 3, 1, 2).chunk(2, dim=1)
        product = (a.mT @ b).permute(0, 2, 3, 1)
        return pair + self.gate(x).sigmoid() * self.out(self.inner(product))


class Contacts(nn.Module):
    def __init__(self, length=9, residues=12, dim=8, channels=6, blocks=2):
        super().__init__()
        self.residue = nn.Embedding(residues, dim)
        self.row = nn.Linear(dim, dim)
        self.column = nn.Linear(dim, dim, bias=False)
        self.position = nn.Embedding(2 * REACH + 1, dim)
        place = torch.arange(length)
        offset = (place[None, :] - place[:, None]).clamp(-REACH, REACH) + REACH
        self.register_buffer("offset", offset, persistent=False)
        self.blocks = nn.ModuleList()
        for _ in range(blocks):
            self.blocks.append(Triangle(dim, channels))
            wide = nn.Linear(dim, 2 * dim)
            self.blocks.append(
                nn.Sequential(nn.LayerNorm(dim, eps=1e-3), wide, nn.ReLU(), nn.Linear(2 * dim, dim))
            )
        self.norm = nn.LayerNorm(dim, eps=1e-3)
        self.contact = nn.Linear(dim, 1)

    def forward(self, residues):
        x = self.residue(residues.long())
        pair = self.row(x)[:, :, None] + self.column(x)[:, None, :] + self.position(self.offset)
        for triangle, transition in zip(self.blocks[::2], self.blocks[1::2]):
            pair = triangle(pair)
            pair = pair + transition(pair)
        pair = (pair + pair.transpose(1, 2)) / 2
        return self.contact(self.norm(pair)).squeeze(-1)


def loss(output, target):
    place = torch.arange(output.shape[1], device=output.device)
    far = (place[:, None] - place).abs() > APART
    value = F.binary_cross_entropy_with_logits(output, target, weight=1 + target, reduction="none")
    return value[:, far].mean()


class DecoupledSGD(torch.optim.SGD):
    """SGD whose decay shrinks the weights before each step and stays out of the momentum."""

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                p.mul_(1 - group["lr"] * group["shrink"])
        return super().step(closure)


def optimizer(model):
    kernels = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() <= 1]
    groups = [{"params": kernels, "shrink": 1 / 64}, {"params": vectors, "shrink": 1 / 64}]
    return DecoupledSGD(groups, lr=1 / 16, momentum=0.875)
