import itertools

import torch
from torch import nn
from torch.nn import functional as F

SIZES = (7, 5, 30, 50)  # country, device, campaign, site


class Net(nn.Module):
    """One table for all columns; each column's codes begin where those of the one before end."""

    def __init__(self, dim=8, rank=6, numbers=4, layers=2):
        super().__init__()
        starts = [0, *itertools.accumulate(SIZES)][:-1]
        self.register_buffer("starts", torch.tensor(starts), persistent=False)
        self.vectors = nn.Embedding(sum(SIZES), dim)
        self.linear = nn.Parameter(torch.zeros(sum(SIZES)))

        self.gain = nn.Parameter(torch.ones(numbers))
        self.register_buffer("seen_mean", torch.zeros(numbers))
        self.register_buffer("seen_var", torch.ones(numbers))

        width = dim * len(SIZES) + numbers
        self.v = nn.ParameterList(nn.Parameter(torch.randn(rank, width) * 0.1) for _ in range(layers))
        self.u = nn.ParameterList(nn.Parameter(torch.randn(width, rank) * 0.1) for _ in range(layers))
        self.c = nn.ParameterList(nn.Parameter(torch.zeros(width)) for _ in range(layers))
        self.mlp = nn.ModuleList([nn.Linear(width, 40), nn.Linear(40, 24)])
        self.score = nn.Linear(width + 24 + dim, 1)

    def standardise(self, numbers):
        x = torch.copysign(numbers.abs().log1p(), numbers)
        if self.training:
            mean = x.mean(0)
            var = (x - mean).square().mean(0)
            with torch.no_grad():
                self.seen_mean += 0.2 * (mean - self.seen_mean)
                self.seen_var += 0.2 * (var - self.seen_var)
        else:
            mean, var = self.seen_mean, self.seen_var
        return self.gain * (x - mean) / (var + 1e-3).sqrt()

    def forward(self, country, device, campaign, site, numbers):
        codes = torch.cat([country, device, campaign, site], dim=1) + self.starts
        fields = self.vectors(codes)
        wide = torch.cat([fields.flatten(1), self.standardise(numbers)], dim=1)

        crossed = wide
        for v, u, c in zip(self.v, self.u, self.c):
            crossed = torch.addcmul(crossed, wide, F.linear(F.linear(crossed, v), u, c))

        deep = wide
        for layer in self.mlp:
            deep = F.dropout(F.leaky_relu(layer(deep), 0.125), 0.2, self.training)

        products = torch.einsum("bid,bjd->ijbd", fields, fields)
        n = len(SIZES)
        pairs = sum(products[i, j] for i in range(n) for j in range(i + 1, n))

        logit = self.score(torch.cat([crossed, deep, pairs], dim=1)).squeeze(1)
        return logit + self.linear[codes].sum(1)
