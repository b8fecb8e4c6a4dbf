import itertools

import torch
from torch import nn
from torch.nn import functional as F


class DeepFM(nn.Module):
    def __init__(self, fields=(12, 7, 20, 5), numeric=5, factors=8, hidden=(32, 16)):
        super().__init__()
        self.register_buffer("starts", torch.tensor([0, *fields[:-1]]).cumsum(0))
        n = len(fields)
        self.V = nn.Parameter(torch.empty(sum(fields), factors).uniform_(-0.05, 0.05))
        self.w = nn.EmbeddingBag(sum(fields), 1, mode="sum")
        self.linear = nn.Linear(numeric, 1)
        sizes = [n * factors + numeric, *hidden]
        self.deep = nn.ModuleList(nn.Linear(i, o) for i, o in itertools.pairwise(sizes))
        self.deep_out = nn.Linear(hidden[-1], 1, bias=False)
        self.pairs = tuple(torch.triu_indices(n, n, offset=1))

    def forward(self, categories, numeric):
        ids = categories + self.starts
        v = F.embedding(ids, self.V)
        first, second = self.pairs
        fm = torch.einsum("bpk,bpk->b", v[:, first], v[:, second])
        y = torch.hstack([v.flatten(1), numeric])
        for layer in self.deep:
            y = layer(y).relu()
        return (self.w(ids) + self.linear(numeric) + self.deep_out(y)) + fm[:, None]
