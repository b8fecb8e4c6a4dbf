"""MADE in PyTorch, with one layer for the means and scales."""

import torch
from torch import nn
from torch.distributions import Normal
from torch.nn import functional as F


class MaskedLinear(nn.Linear):
    def __init__(self, from_degrees, to_degrees, strict=False):
        super().__init__(len(from_degrees), len(to_degrees))
        compare = torch.gt if strict else torch.ge
        mask = compare(to_degrees[:, None], from_degrees[None])
        self.register_buffer("mask", mask, persistent=False)
        nn.init.zeros_(self.bias)

    def forward(self, x):
        return F.linear(x, self.weight.masked_fill(~self.mask, 0), self.bias)


class Net(nn.Module):
    def __init__(self, features=6, hidden=20, detectors=3):
        super().__init__()
        first = torch.arange(features) + 1
        inner = torch.arange(hidden) % (features - 1) + 1
        self.condition = nn.Embedding(detectors, hidden)
        self.input = MaskedLinear(first, inner)
        self.hidden = MaskedLinear(inner, inner)
        self.output = MaskedLinear(inner, torch.cat([first, first]), strict=True)

    def forward(self, x, detector):
        h = F.elu(self.input(x) + self.condition(detector))
        h = F.elu(self.hidden(h))
        mean, scale = self.output(h).chunk(2, dim=1)
        return torch.stack([mean, 2 * scale.tanh()], dim=2)


def loss(output, y):
    mean, log_scale = output.unbind(-1)
    return -Normal(mean, log_scale.exp()).log_prob(y).sum(1).mean()
