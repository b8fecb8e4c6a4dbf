"""The matcher in PyTorch: keys and values in one projection, fused attention, both directions by one function."""

import math

import torch
from torch import nn
from torch.nn import functional as F


def sinkhorn(z, log_rows, log_columns, rounds):
    u, v = torch.zeros_like(log_rows), torch.zeros_like(log_columns)
    for _ in range(rounds):
        u = log_rows - torch.logsumexp(z + v.unsqueeze(1), dim=2)
        v = log_columns - torch.logsumexp(z + u.unsqueeze(2), dim=1)
    return z + u.unsqueeze(2) + v.unsqueeze(1)


class CrossMessage(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.to_q = nn.Linear(width, width)
        self.to_kv = nn.Linear(width, 2 * width)
        self.merge = nn.Linear(width, width)

    def forward(self, x, source):
        key, value = self.to_kv(source).chunk(2, dim=-1)
        return x + self.merge(F.scaled_dot_product_attention(self.to_q(x), key, value))


class Net(nn.Module):
    def __init__(self, width=8, rounds=5):
        super().__init__()
        self.rounds = rounds
        self.encoder = nn.Sequential(nn.Linear(2, 10), nn.ReLU(), nn.Linear(10, width))
        self.cross = CrossMessage(width)
        self.final = nn.Linear(width, width, bias=False)
        self.dustbin = nn.Parameter(torch.tensor(1.0))

    def forward(self, desc0, place0, desc1, place1):
        a, b = desc0 + self.encoder(place0), desc1 + self.encoder(place1)
        a, b = self.final(self.cross(a, b)), self.final(self.cross(b, a))
        scores = torch.einsum("bmd,bnd->bmn", a, b) * a.shape[-1] ** -0.5
        batch, m, n = scores.shape
        z = self.dustbin.expand(batch, m + 1, n + 1).clone()
        z[:, :m, :n] = scores
        log_rows = z.new_zeros(batch, m + 1)
        log_rows[:, m] = math.log(n)
        log_columns = z.new_zeros(batch, n + 1)
        log_columns[:, n] = math.log(m)
        total = math.log(m + n)
        return sinkhorn(z, log_rows - total, log_columns - total, self.rounds) + total


def loss(log_assignment, partner):
    """The classes of a point are its partners, the last one is the dustbin."""
    return F.nll_loss(log_assignment[:, :-1].flatten(0, 1), partner.flatten().long())
