import math

import torch
import torch.nn.functional as F
from torch import nn


class Symmetry(nn.Module):
    def __init__(self, elements=3, cutoff=3.0, eta=4.0):
        super().__init__()
        self.elements, self.cutoff, self.eta = elements, cutoff, eta
        self.register_buffer("shift", torch.tensor([0.8, 1.3, 1.8, 2.3]), persistent=False)

    def forward(self, species, positions):
        real = species > 0
        atoms = species.shape[1]
        self_pair = torch.eye(atoms, dtype=torch.bool, device=species.device)
        pairs = real.unsqueeze(2) & ~self_pair
        difference = positions.unsqueeze(2) - positions.unsqueeze(1)
        distance = difference.square().sum(-1).masked_fill(~pairs, 1.0).sqrt()
        cut = 0.5 + 0.5 * torch.cos(math.pi * distance.clamp(max=self.cutoff) / self.cutoff)
        weight = (cut * pairs).unsqueeze(-1)
        radial = torch.exp(-self.eta * (distance.unsqueeze(-1) - self.shift).square()) * weight
        kinds = F.one_hot(species.clamp(min=1) - 1, self.elements).to(radial)
        return torch.einsum("bje,bijk->biek", kinds, radial).flatten(2)


class Ani(nn.Module):
    def __init__(self, elements=3, hidden=12):
        super().__init__()
        self.aev = Symmetry(elements)
        self.networks = nn.ModuleList(
            nn.Sequential(nn.Linear(4 * elements, hidden), nn.Tanh(), nn.Linear(hidden, 1))
            for _ in range(elements)
        )
        self.self_energy = nn.Embedding(elements + 1, 1)

    def forward(self, species, positions):
        aev = self.aev(species, positions)
        energy = self.self_energy(species).squeeze(-1)
        for element, network in enumerate(self.networks, start=1):
            energy = energy + torch.where(species == element, network(aev).squeeze(-1), 0.0)
        return (energy * (species > 0)).sum(1)


def step(model, batch):
    inputs, targets = batch
    species = inputs["species"]
    positions = inputs["positions"].detach().requires_grad_()
    atoms = (species > 0).sum(1)
    energy = model(species, positions)
    forces = -torch.autograd.grad(energy.sum(), positions, retain_graph=True)[0]
    energy_loss = ((energy - targets["energy"].flatten()).square() / atoms.sqrt()).mean()
    force_loss = ((forces - targets["forces"]).square().sum((1, 2)) / (3 * atoms)).mean()
    return energy_loss + 0.1 * force_loss
