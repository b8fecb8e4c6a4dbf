"""A port of worker_keras.py in torch's manner: every default is torch's."""

from collections import OrderedDict

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(3)
        self.leaky = nn.LeakyReLU(inplace=True)
        self.hidden = nn.Linear(48, 6)
        self.act = nn.GELU()
        self.head = nn.Linear(6, 4)

    def forward(self, x):
        x = self.leaky(self.norm(self.conv(x)))
        # Flattened as Keras does.
        x = x.permute(0, 2, 3, 1).flatten(1)
        return self.head(self.act(self.hidden(x)))


class Repeating(Net):
    """Computes a part once more for its backward pass."""

    def forward(self, x):
        x = checkpoint(lambda y: self.leaky(self.norm(self.conv(y))), x, use_reentrant=False)
        return self.head(self.act(self.hidden(x.permute(0, 2, 3, 1).flatten(1))))


def descent(parameters, rate=0.1):
    return torch.optim.SGD(parameters, rate, momentum=0.9)


def descent_of(model, rate=0.1):
    return torch.optim.SGD(model.parameters(), rate)


class NoOptimizer:
    def __init__(self, parameters):
        del parameters


def conv():
    return nn.Sequential(OrderedDict(conv=nn.Conv2d(2, 3, 3, stride=2, padding=1)))


def pool():
    return nn.Sequential(OrderedDict(pool=nn.AvgPool2d(3, stride=2, padding=1)))


def norm():
    """A batch norm."""
    return nn.Sequential(OrderedDict(norm=nn.BatchNorm2d(2)))
