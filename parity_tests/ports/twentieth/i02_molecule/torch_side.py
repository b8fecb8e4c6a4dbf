import torch
from torch import nn
from torch.nn import functional as F


class GatedGraph(nn.Module):
    def __init__(self, types=3, width=16, rounds=3):
        super().__init__()
        self.types, self.rounds = types, rounds
        self.embed = nn.Embedding(8, width)
        self.out = nn.Linear(width, 1)
        self.value = nn.Linear(width, width)
        self.gate = nn.Linear(2 * width, width)
        self.update = nn.GRUCell(width, width)
        self.message = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(types))

    def forward(self, atoms, bonds):
        first = self.embed(atoms.long())
        links = F.one_hot(bonds.long(), self.types + 1)[..., 1:].to(first.dtype)
        h = first
        for _ in range(self.rounds):
            sent = torch.stack([message(h) for message in self.message])  # type, batch, atom, width
            m = torch.einsum("bijt,tbjd->bid", links, sent)
            h = self.update(m.flatten(0, 1), h.flatten(0, 1)).unflatten(0, atoms.shape)
        gated = torch.sigmoid(self.gate(torch.cat([h, first], -1))) * torch.tanh(self.value(h))
        pooled = gated.masked_fill((atoms == 0)[..., None], 0).sum(-2)
        return self.out(pooled).squeeze(-1)
