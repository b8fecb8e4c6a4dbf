"""PyTorch port: a train is put together to its matrix, right to left, and applied as a linear layer."""

from math import prod

import torch
from torch import nn
from torch.nn import functional as F


class TrainLinear(nn.Module):
    def __init__(self, fan_in, fan_out, rank):
        super().__init__()
        ranks = [1, *[rank] * (len(fan_in) - 1), 1]
        self.cores = nn.ParameterList(
            0.35 * torch.randn(left, n, m, right)
            for left, n, m, right in zip(ranks[:-1], fan_in, fan_out, ranks[1:])
        )
        self.bias = nn.Parameter(torch.zeros(prod(fan_out)))

    def matrix(self):
        first, *middle = self.cores
        tail = middle.pop()[..., 0]
        for core in reversed(middle):
            merged = torch.tensordot(core, tail, dims=1)  # rank, n, m, n', m'
            tail = merged.permute(0, 1, 3, 2, 4).flatten(3, 4).flatten(1, 2)
        whole = torch.tensordot(first[0], tail, dims=1)
        return whole.permute(1, 3, 0, 2).reshape(len(self.bias), -1)

    def forward(self, x):
        return F.linear(x, self.matrix(), self.bias)


class KerasBatchNorm(nn.BatchNorm1d):
    """Keeps the biased variance."""

    def forward(self, x):
        if self.training:
            with torch.no_grad():
                variance, mean = torch.var_mean(x, dim=0, correction=0)
                self.running_mean += self.momentum * (mean - self.running_mean)
                self.running_var += self.momentum * (variance - self.running_var)
            return F.batch_norm(x, None, None, self.weight, self.bias, training=True, eps=self.eps)
        return super().forward(x)


class Net(nn.Module):
    def __init__(self, classes=6):
        super().__init__()
        self.expand = TrainLinear((4, 4, 4), (3, 4, 5), rank=4)
        self.normalise = KerasBatchNorm(60, eps=1e-3, momentum=0.1)
        self.regularise = nn.Dropout(p=0.2)
        self.mix = TrainLinear((3, 4, 5), (5, 4, 3), rank=3)
        self.logits = nn.Linear(60, classes)

    def forward(self, picture):
        h = self.expand(picture.flatten(start_dim=1))
        h = self.regularise(F.relu(self.normalise(h)))
        h = h + torch.tanh(self.mix(h))
        return self.logits(h)
