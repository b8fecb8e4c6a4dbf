"""Soft oblivious trees in PyTorch: the leaves' probabilities as an outer product of the levels."""

import torch
from torch import nn
from torch.nn import functional as F

PENALTY = 1 / 1024


class Trees(nn.Module):
    def __init__(self, features, trees=4, depth=3):
        super().__init__()
        self.choice = nn.Parameter(0.5 * torch.randn(features, trees, depth))
        self.threshold = nn.Parameter(0.5 * torch.randn(trees, depth))
        self.sharpness = nn.Parameter(torch.zeros(trees, depth))
        self.answer = nn.Parameter(0.5 * torch.randn(trees, 2**depth))

    def forward(self, x):
        chosen = torch.einsum("bf,ftd->btd", x, self.choice.softmax(0))
        logit = (chosen - self.threshold) * self.sharpness.exp()
        sides = torch.stack([torch.sigmoid(-logit), torch.sigmoid(logit)], dim=-1)
        reached = torch.ones_like(sides[:, :, 0, :1])
        for level in sides.unbind(2):
            reached = (reached.unsqueeze(3) * level.unsqueeze(2)).flatten(2)
        return (reached * self.answer).sum(2)


class Net(nn.Module):
    def __init__(self, features=6, trees=4):
        super().__init__()
        self.first = Trees(features, trees)
        self.second = Trees(features + trees, trees)

    def forward(self, flat):
        first = self.first(flat)
        second = self.second(torch.cat([flat, first], dim=1))
        return (first + second).mean(1)


def log_cosh(error):
    return error.abs() + F.softplus(-2 * error.abs()) - torch.log(torch.tensor(2.0, dtype=error.dtype))


def step(model, batch):
    flat, price = batch
    error = model(flat) - price.view(-1)
    penalty = sum(trees.answer.square().sum() for trees in (model.first, model.second))
    return log_cosh(error).mean() + PENALTY * penalty
