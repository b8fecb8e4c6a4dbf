"""DeepFM: a factorisation machine and a deep part over the same embeddings; numbers are normalised by stored moments."""

from pathlib import Path

import numpy as np
import torch
from torch import nn

SIZES = [12, 7, 5, 9]


class Normalise(nn.Module):
    def __init__(self, samples):
        super().__init__()
        self.register_buffer("mean", torch.as_tensor(samples.mean(0, keepdims=True)))
        self.register_buffer("variance", torch.as_tensor(samples.var(0, keepdims=True)))

    def forward(self, x):
        return (x - self.mean) / self.variance.sqrt().clamp(min=1e-7)


class DeepFM(nn.Module):
    def __init__(self, factors=6):
        super().__init__()
        numbers = np.load(Path(__file__).parent / "data.npz")["numbers"]
        self.normalise = Normalise(numbers)
        self.register_buffer("offsets", torch.tensor([0, *np.cumsum(SIZES)[:-1]]), persistent=False)
        self.first = nn.Embedding(sum(SIZES), 1)
        self.factors = nn.Embedding(sum(SIZES), factors)
        self.linear = nn.Linear(3, 1)
        self.deep = nn.Sequential()
        width = factors * len(SIZES) + 3
        for units in (24, 12):
            self.deep.extend([nn.Linear(width, units), nn.LeakyReLU(0.3), nn.Dropout(0.2)])
            width = units
        self.deep.append(nn.Linear(width, 1, bias=False))

    def forward(self, fields, numbers):
        ids = fields + self.offsets
        dense = self.normalise(numbers)
        v = self.factors(ids)
        fm = (v.sum(1).pow(2) - v.pow(2).sum(1)).sum(-1, keepdim=True) / 2
        return (
            self.first(ids).sum(1) + self.linear(dense) + fm + self.deep(torch.cat([v.flatten(1), dense], 1))
        )
