import torch
from torch import nn
from torch.nn.functional import mse_loss


class GatedGraphNet(nn.Module):
    def __init__(self, atoms=7, bond_types=4, width=10, readout=12, rounds=3):
        super().__init__()
        self.rounds = rounds
        self.embedding = nn.Embedding(atoms, width)
        self.bond_matrices = nn.Parameter(torch.empty(bond_types, width, width))
        for matrix in self.bond_matrices:
            nn.init.orthogonal_(matrix)
        self.update = nn.GRUCell(width, width)
        self.gate = nn.Linear(width, readout)
        self.value = nn.Linear(width, readout)
        self.energy = nn.Linear(readout, 1)
        self.dipole = nn.Linear(readout, 3)

    def propagate(self, h, edges):
        """One round over the list of all bonds of the batch; `h` is (batch * atoms, width)."""
        kind, receiver, sender = edges
        sent = torch.bmm(h[sender].unsqueeze(1), self.bond_matrices[kind]).squeeze(1)
        received = torch.zeros_like(h).index_add(0, receiver, sent)
        return self.update(received, h)

    def forward(self, atoms, bonds):
        batch, n = atoms.shape
        b, i, j = bonds.nonzero(as_tuple=True)
        edges = bonds[b, i, j] - 1, b * n + i, b * n + j
        h = self.embedding(atoms).flatten(0, 1)
        for _ in range(self.rounds):
            h = self.propagate(h, edges)
        h = h.view(batch, n, -1)
        out = torch.sigmoid(self.gate(h)) * torch.tanh(self.value(h))
        out = out.masked_fill((atoms == 0).unsqueeze(-1), 0).sum(1)
        return {"energy": self.energy(out), "dipole": self.dipole(out)}


def loss(outputs, targets):
    return sum(mse_loss(outputs[name], targets[name]) for name in ("energy", "dipole"))
