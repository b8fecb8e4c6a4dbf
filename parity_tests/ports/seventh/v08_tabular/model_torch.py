import math

import torch
from torch import nn


class BatchNorm1d(nn.BatchNorm1d):
    """Tracks the biased variance, as Keras does."""

    def forward(self, x):
        if self.training:
            with torch.no_grad():
                var, mean = torch.var_mean(x, 0, unbiased=False)
                self.running_mean.lerp_(mean, self.momentum)
                self.running_var.lerp_(var, self.momentum)
            return nn.functional.batch_norm(x, None, None, self.weight, self.bias, True, 0.0, self.eps)
        return super().forward(x)


def batch_norm(width):
    return BatchNorm1d(width, eps=1e-3, momentum=0.9)


class PeriodicEmbeddings(nn.Module):
    def __init__(self, n_features, n_frequencies=4, d_embedding=3, sigma=0.5):
        super().__init__()
        self.frequencies = nn.Parameter(torch.randn(n_features, n_frequencies) * sigma)
        self.weight = nn.Parameter(
            torch.randn(n_features, 2 * n_frequencies, d_embedding) * n_frequencies**-0.5
        )

    def forward(self, x):
        x = 2 * math.pi * self.frequencies * x[..., None]
        x = torch.cat([x.cos(), x.sin()], -1)
        return torch.relu((x[..., None, :] @ self.weight).squeeze(-2))


class Block(nn.Sequential):
    def __init__(self, d, p=0.1):
        super().__init__(batch_norm(d), nn.Linear(d, 2 * d), nn.ReLU(), nn.Dropout(p), nn.Linear(2 * d, d))

    def forward(self, x):
        return x + super().forward(x)


class Net(nn.Module):
    def __init__(self, n_features=7, d=24, n_blocks=3):
        super().__init__()
        self.embed = PeriodicEmbeddings(n_features)
        self.first_layer = nn.Linear(3 * n_features, d)
        self.blocks = nn.Sequential(*(Block(d) for _ in range(n_blocks)))
        self.head = nn.Sequential(batch_norm(d), nn.ReLU(), nn.Linear(d, 1))

    def forward(self, table):
        x = self.first_layer(self.embed(table).flatten(1))
        return self.head(self.blocks(x))


def optimizer(model):
    """L2 on the kernels only."""
    kernels = [m.weight for m in model.modules() if isinstance(m, nn.Linear)]
    rest = [p for p in model.parameters() if not any(p is k for k in kernels)]
    groups = [{"params": kernels, "weight_decay": 1e-3}, {"params": rest, "weight_decay": 0.0}]
    return torch.optim.SGD(groups, lr=0.02, momentum=0.9, nesterov=True)
