"""What `keras2_models` are in torch."""

import torch
import torch.nn.functional as F
from torch import nn


def images(momentum=0.01):
    return nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.ReLU(),
        nn.BatchNorm2d(4, eps=1e-3, momentum=momentum),
        nn.Flatten(),
        nn.Linear(144, 5),
    )


def rows():
    return nn.Sequential(
        nn.Linear(6, 8), nn.Tanh(), nn.BatchNorm1d(8, eps=1e-3, momentum=0.01), nn.Linear(8, 3)
    )


class Reader(nn.Module):
    """A port of `Reader`, its step beside it."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(12, 6)
        self.memory = nn.GRU(6, 5, batch_first=True)
        self.denses = nn.ModuleList(nn.Linear(5, 5) for _ in range(2))
        self.scales = nn.ParameterList(torch.ones(5) for _ in range(2))
        self.norm = nn.BatchNorm1d(5, eps=1e-3, momentum=0.01)
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(5, 3)

    def forward(self, x):
        h, lengths = self.memory(self.table(x))[0], (x != 0).sum(1)
        # Behind its end a sequence keeps its last state.
        at = torch.minimum(torch.arange(x.shape[1]), lengths[:, None] - 1)
        h = h.gather(1, at[..., None].expand_as(h))
        self.penalty = 0.0
        for dense, scale in zip(self.denses, self.scales, strict=True):
            self.penalty = self.penalty + 0.1 * (h**2).mean()
            h = self.encoded(h, dense, scale)
        h = self.norm(h.transpose(1, 2))[..., -1]
        return self.head(self.drop(h))

    def encoded(self, h, dense, scale):
        return h + F.gelu(dense(h)) * scale


class WrongReader(Reader):
    def encoded(self, h, dense, scale):
        return (h + F.gelu(dense(h))) * scale


def step(model, batch):
    x, y = batch
    return F.cross_entropy(model(x), y) + model.penalty


def head():
    return nn.Linear(6, 3)
