"""GloVe in PyTorch."""

import torch
from torch import nn


class Table(nn.Module):
    """A vector and a bias for each word."""

    def __init__(self, words, width):
        super().__init__()
        self.vector = nn.Embedding(words, width, padding_idx=0)
        self.bias = nn.Embedding(words, 1)
        nn.init.uniform_(self.vector.weight, -0.05, 0.05)
        nn.init.uniform_(self.bias.weight, -0.05, 0.05)

    def forward(self, word):
        return self.vector(word), self.bias(word).squeeze(-1)


class Net(nn.Module):
    def __init__(self, words=40, width=6):
        super().__init__()
        self.focus = Table(words, width)
        self.context = Table(words, width)

    def forward(self, focus, context):
        v, b = self.focus(focus)
        w, c = self.context(context)
        return torch.einsum("bd,bd->b", v, w) + b + c


def loss(score, count):
    weight = (count / 20).clamp(max=1) ** 0.75
    error = score - count.log()
    return (weight * error**2).sum() / weight.sum()


def optimizer(model):
    parameters = model.parameters() if isinstance(model, nn.Module) else model
    return torch.optim.Adagrad(parameters, lr=0.1, eps=1e-16)
