"""Tiny NeRF in PyTorch."""

import torch
import torch.nn.functional as F
from torch import nn

NEAR, FAR, SAMPLES = 1.0, 4.0, 12
WIDTH, DEPTH, SKIP = 32, 4, 2


def encode(x, n_freqs):
    parts = [x]
    for k in range(n_freqs):
        parts.append(torch.sin(x * 2**k))
        parts.append(torch.cos(x * 2**k))
    return torch.cat(parts, dim=-1)


def render(density, rgb, deltas):
    tau = density * deltas
    alpha = 1 - torch.exp(-tau)
    weights = alpha * torch.exp(-torch.cumsum(tau, dim=-1))
    colour = (weights.unsqueeze(-1) * rgb).sum(1)
    return colour + (1 - weights.sum(1, keepdim=True))


class TinyNeRF(nn.Module):
    def __init__(self):
        super().__init__()
        pts_dim, view_dim = 3 * (1 + 2 * 4), 3 * (1 + 2 * 2)
        dims = [pts_dim] + [WIDTH] * (DEPTH - 1)
        dims[SKIP] += pts_dim
        self.trunk = nn.ModuleList([nn.Linear(d, WIDTH) for d in dims])
        self.density = nn.Linear(WIDTH, 1)
        self.feature = nn.Linear(WIDTH, WIDTH)
        self.colour1 = nn.Linear(WIDTH + view_dim, WIDTH // 2)
        self.colour2 = nn.Linear(WIDTH // 2, 3)
        edges = torch.linspace(NEAR, FAR, SAMPLES + 1, dtype=torch.float64)
        self.register_buffer("mids", (edges[1:] + edges[:-1]) / 2)
        self.register_buffer("bins", edges[1:] - edges[:-1])

    def forward(self, origins, directions):
        mids, bins = self.mids.to(origins.dtype), self.bins.to(origins.dtype)
        points = origins.unsqueeze(1) + directions.unsqueeze(1) * mids.view(1, -1, 1)
        viewdirs = F.normalize(directions, dim=-1).unsqueeze(1).expand_as(points)
        deltas = bins.expand(origins.shape[0], -1)
        pts, view = encode(points, 4), encode(viewdirs, 2)
        h = pts
        for i, layer in enumerate(self.trunk):
            if i == SKIP:
                h = torch.cat([pts, h], dim=-1)
            h = F.relu(layer(h))
        density = F.softplus(self.density(h).squeeze(-1) - 1.0)
        c = F.relu(self.colour1(torch.cat([self.feature(h), view], dim=-1)))
        return render(density, torch.sigmoid(self.colour2(c)), deltas)


def build():
    return TinyNeRF()
