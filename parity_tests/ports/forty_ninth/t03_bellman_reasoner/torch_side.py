import math

import torch
import torch.nn.functional as F
from torch import nn


class MaxMPNN(nn.Module):
    """Works on the disjoint union of the graphs of a batch."""

    def __init__(self, dim):
        super().__init__()
        self.message = nn.Sequential(nn.Linear(3 * dim, dim), nn.ReLU(), nn.Linear(dim, dim))
        self.update = nn.Linear(2 * dim, 2 * dim)
        self.norm = nn.LayerNorm(dim, eps=1e-3)

    def forward(self, h, edge, tail, head):
        msg = self.message(torch.cat((h[tail], h[head], edge), 1))
        index = head[:, None].expand_as(msg)
        inbox = torch.zeros_like(h).scatter_reduce(0, index, msg, reduce="amax")
        cand, gate = self.update(torch.cat((h, inbox), 1)).chunk(2, dim=1)
        return torch.lerp(h, self.norm(cand).relu(), gate.sigmoid())


class Reasoner(nn.Module):
    def __init__(self, dim=24, rounds=4):
        super().__init__()
        self.rounds = rounds
        self.embed_node = nn.Linear(3, dim)
        self.embed_edge = nn.Linear(1, dim)
        self.mpnn = MaxMPNN(dim)
        self.q = nn.Linear(dim, dim)
        self.k = nn.Linear(dim, dim, bias=False)

    def forward(self, nodes, lengths, src, dst):
        batch, n, _ = nodes.shape
        shift = torch.arange(batch, device=nodes.device).unsqueeze(1) * n
        tail = (src.long() + shift).flatten()
        head = (dst.long() + shift).flatten()
        h = self.embed_node(nodes.flatten(0, 1))
        edge = self.embed_edge(lengths.reshape(-1, 1))
        for _ in range(self.rounds):
            h = self.mpnn(h, edge, tail, head)
        q = self.q(h).view(batch, n, -1)
        k = self.k(h).view(batch, n, -1)
        return torch.bmm(q, k.mT) / math.sqrt(q.shape[-1])


def loss(outputs, targets):
    return F.cross_entropy(outputs.flatten(0, 1), targets.long().flatten())


def build():
    return Reasoner()
