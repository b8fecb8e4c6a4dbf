"""PyTorch port: the bodies that exist as one list, pairs of them as edges, sums by index."""

import torch
from torch import nn
from torch.nn import functional as F


def mlp(inputs, hidden, outputs):
    return nn.Sequential(nn.Linear(inputs, hidden), nn.SiLU(), nn.Linear(hidden, outputs))


class EGCL(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.phi_e = mlp(2 * dim + 1, hidden, hidden)
        self.phi_x = nn.Linear(hidden, 1, bias=False)
        self.phi_v = nn.Linear(dim, 1)
        self.phi_h = mlp(dim + hidden, hidden, dim)

    def forward(self, h, x, v, edges, degree):
        to, source = edges
        offset = x[to] - x[source]
        distance = 1 + torch.einsum("ec,ec->e", offset, offset).unsqueeze(1)
        m = F.silu(self.phi_e(torch.cat([h[to], h[source], distance.reciprocal()], dim=1)))
        force = torch.zeros_like(x).index_add(0, to, self.phi_x(m) * (offset / distance)) / degree
        heard = m.new_zeros(len(h), m.shape[1]).index_add(0, to, m)
        v = self.phi_v(h) * v + force
        return h + self.phi_h(torch.cat([h, heard], dim=1)), x + v, v


class Net(nn.Module):
    def __init__(self, dim=16, hidden=24, depth=2):
        super().__init__()
        self.embedding = nn.Linear(2, dim)
        self.gcl = nn.ModuleList([EGCL(dim, hidden) for _ in range(depth)])
        self.correction = nn.Linear(dim, 1)

    def forward(self, position, velocity, charge):
        exists = charge != 0
        system = exists.nonzero()[:, 0]
        pairs = system.unsqueeze(0) == system.unsqueeze(1)
        degree = (pairs.sum(dim=1) - 1).clamp(min=1).unsqueeze(1)
        edges = pairs.fill_diagonal_(False).nonzero().unbind(1)

        x, v, q = position[exists], velocity[exists], charge[exists]
        start = x
        h = self.embedding(torch.stack([q, v.pow(2).sum(dim=1)], dim=1))
        for layer in self.gcl:
            h, x, v = layer(h, x, v, edges, degree)
        moved = torch.addcmul(x - start, self.correction(h), v)
        return torch.zeros_like(position).masked_scatter(exists.unsqueeze(-1), moved)
