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


def warming(parameters):
    """A fifth, two fifths, ... of the rate."""
    optimizer = torch.optim.SGD(parameters, 0.5)
    return optimizer, torch.optim.lr_scheduler.LinearLR(optimizer, 0.2, 1.0, 4)


def hidden(parameters):
    return warming(parameters)[0]


def cycling(parameters):
    optimizer = torch.optim.SGD(parameters, 0.5, momentum=0.9)
    return optimizer, torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.5, total_steps=8)


def short(parameters):
    optimizer = torch.optim.SGD(parameters, 0.5)
    return optimizer, torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.5, total_steps=3, cycle_momentum=False)


def rateless(parameters):
    optimizer = torch.optim.SGD(parameters, 0.5)
    optimizer.rates = [group.pop("lr") for group in optimizer.param_groups]
    return optimizer


def waiting(parameters):
    optimizer = torch.optim.SGD(parameters, 0.5)
    return optimizer, torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)


def groups(parameters):
    first, *rest = parameters
    optimizer = torch.optim.SGD([{"params": [first]}, {"params": rest, "lr": 0.25}], 0.5)
    return optimizer, torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)


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
