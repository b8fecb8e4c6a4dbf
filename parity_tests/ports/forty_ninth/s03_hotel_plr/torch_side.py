import numpy as np
import torch
from torch import nn


class NumberEmbedding(nn.Module):
    """x -> relu(W_f [cos 2 pi c x, sin 2 pi c x] + b_f), a W for every feature."""

    def __init__(self, n_features, n_frequencies, d, sigma=0.3):
        super().__init__()
        self.c = nn.Parameter(sigma * torch.randn(n_features, n_frequencies))
        self.weight = nn.Parameter(torch.empty(n_features, 2 * n_frequencies, d).uniform_(-0.3, 0.3))
        self.bias = nn.Parameter(torch.zeros(n_features, d))

    def forward(self, x):
        v = 2 * torch.pi * x[..., None] * self.c
        v = torch.cat([v.cos(), v.sin()], -1)
        v = torch.bmm(v.transpose(0, 1), self.weight).transpose(0, 1) + self.bias
        return v.relu().flatten(1)


class Residual(nn.Module):
    def __init__(self, d, hidden):
        super().__init__()
        self.body = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, hidden), nn.ReLU(), nn.Linear(hidden, d))

    def forward(self, x):
        return x + self.body(x)


class BookingNet(nn.Module):
    def __init__(self, cardinalities=(12, 5, 9), d_cat=6, d=48):
        super().__init__()
        mean = np.array([96.4, 3.3, 1.87, 0.23, 103.7, 0.42, 0.31, 4.6], dtype=np.float32)
        var = np.array([9120.0, 5.9, 0.31, 0.29, 2180.0, 1.94, 0.47, 83.0], dtype=np.float32)
        self.register_buffer("mean", torch.from_numpy(mean))
        self.register_buffer("var", torch.from_numpy(var))
        self.register_buffer("offsets", torch.tensor([0, *np.cumsum(cardinalities)[:-1]]), persistent=False)
        self.impute = nn.Parameter(torch.zeros(8))
        self.embed_numbers = NumberEmbedding(8, 6, 5)
        self.embed_categories = nn.Embedding(sum(cardinalities), d_cat)
        self.trunk = nn.Sequential(
            nn.Linear(8 * 5 + len(cardinalities) * d_cat, d),
            *[Residual(d, 64) for _ in range(3)],
        )
        self.head = nn.Sequential(nn.LayerNorm(d), nn.ReLU(), nn.Linear(d, 1))

    def forward(self, numbers, categories):
        missing = numbers < -900
        z = (numbers - self.mean) / self.var.sqrt()
        z = torch.where(missing, self.impute.expand_as(z), z)
        cats = self.embed_categories(categories.long() + self.offsets).flatten(1)
        return self.head(self.trunk(torch.cat([self.embed_numbers(z), cats], 1)))


def build():
    return BookingNet()
