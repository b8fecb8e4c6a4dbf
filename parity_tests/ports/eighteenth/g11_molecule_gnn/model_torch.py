import torch
from torch import nn


class MessagePassing(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.message = nn.Sequential(nn.Linear(2 * dim, dim), nn.Tanh())
        self.update = nn.Sequential(nn.Linear(2 * dim, dim), nn.Tanh())

    @staticmethod
    def pick(h, index):
        return h.gather(1, index.unsqueeze(-1).expand(-1, -1, h.size(-1)))

    def forward(self, h, edges, edge_mask, atom_mask):
        src, dst = edges.unbind(-1)
        m = self.message(torch.cat([self.pick(h, src), self.pick(h, dst)], -1)) * edge_mask.unsqueeze(-1)
        incoming = torch.zeros_like(h).scatter_add(1, src.unsqueeze(-1).expand_as(m), m)
        h = h + self.update(torch.cat([h, incoming], -1))
        return h * atom_mask.unsqueeze(-1)


class MoleculeNet(nn.Module):
    def __init__(self, dim=10, rounds=3):
        super().__init__()
        self.rounds = rounds
        self.kind = nn.Embedding(4, dim)
        self.charge = nn.Linear(2, dim)
        self.mp = MessagePassing(dim)
        self.readout = nn.Sequential(nn.Linear(dim, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, kind, charge, edges, edge_mask, atom_mask):
        edges = edges.long()
        h = (self.kind(kind.long()) + self.charge(charge)) * atom_mask.unsqueeze(-1)
        for _ in range(self.rounds):
            h = self.mp(h, edges, edge_mask, atom_mask)
        pooled = h.mean(1)
        return self.readout(pooled)


def build():
    return MoleculeNet()


class ClippedSGD(torch.optim.SGD):
    def __init__(self, params, clip=0.5, **kwargs):
        super().__init__(params, **kwargs)
        self.clip = clip

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.grad.clamp_(-self.clip, self.clip)
        return super().step(closure)


def optimizer(params):
    return ClippedSGD(params, lr=0.03, momentum=0.9)
