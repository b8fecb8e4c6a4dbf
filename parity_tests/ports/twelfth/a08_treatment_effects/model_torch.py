"""Dragonnet in PyTorch. Keras's L2 penalty is the optimizer's weight decay."""

import torch
from torch import nn
from torch.nn import functional as F

L2 = 1 / 128


def linear(inputs, outputs):
    layer = nn.Linear(inputs, outputs)
    nn.init.xavier_uniform_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


class Net(nn.Module):
    def __init__(self, features=8, width=12):
        super().__init__()
        self.trunk = nn.Sequential(
            linear(features, width),
            nn.ELU(),
            nn.BatchNorm1d(width, eps=1e-3, momentum=0.01),
            linear(width, width),
            nn.ELU(),
        )
        self.control = nn.Sequential(linear(width, 6), nn.ELU(), linear(6, 1))
        self.treated = nn.Sequential(linear(width, 6), nn.ELU(), linear(6, 1))
        self.propensity = linear(width, 1)
        self.epsilon = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        h = self.trunk(x)
        t = self.propensity(h)
        return torch.cat([self.control(h), self.treated(h), t, self.epsilon.expand_as(t)], dim=1)


def loss(outputs, targets, weights):
    y, t = targets.unbind(1)
    y0, y1, logit, epsilon = outputs.unbind(1)
    predicted = torch.where(t == 1, y1, y0)
    g = logit.sigmoid().clamp(0.01, 0.99)
    h = t / g - (1 - t) / (1 - g)
    value = (y - predicted) ** 2 + F.binary_cross_entropy_with_logits(logit, t, reduction="none")
    value = value + 0.5 * (y - predicted - epsilon * h) ** 2
    return (value * weights).sum() / weights.sum()


def optimizer(model):
    parameters = list(model.parameters() if isinstance(model, nn.Module) else model)
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": L2},
        {"params": [p for p in parameters if p.ndim < 2]},
    ]
    return torch.optim.SGD(groups, lr=0.01, momentum=0.875)
