import torch
import torch.nn.functional as F
from torch import nn


class MaskedConv(nn.Conv2d):
    def __init__(self, inputs, outputs, size, stack, kind="A"):
        kernel = (size, size) if stack == "vertical" else (1, size)
        super().__init__(inputs, outputs, kernel, padding="same")
        mask = torch.ones(kernel)
        first = size // 2 + (kind == "B")
        if stack == "vertical":
            mask[first:] = 0
        else:
            mask[:, first:] = 0
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, x):
        return self._conv_forward(x, self.weight * self.mask, self.bias)


def gate(x):
    a, b = x.chunk(2, dim=1)
    return a.tanh() * b.sigmoid()


class Block(nn.Module):
    def __init__(self, inputs, channels, kind):
        super().__init__()
        self.vertical = MaskedConv(inputs, 2 * channels, 3, "vertical", kind)
        self.horizontal = MaskedConv(inputs, 2 * channels, 3, "horizontal")
        self.link = nn.Conv2d(2 * channels, 2 * channels, 1)
        self.out = nn.Conv2d(channels, channels, 1)
        self.residual = inputs == channels

    def forward(self, v, h):
        v = self.vertical(v)
        side = gate(self.horizontal(h) + self.link(v))
        if self.residual:
            side = side + h
        return gate(v), self.out(side)


class Net(nn.Module):
    def __init__(self, channels=6, depth=3):
        super().__init__()
        self.blocks = nn.ModuleList(
            Block(channels if i else 1, channels, "B" if i else "A") for i in range(depth)
        )
        self.head = nn.Sequential(nn.ReLU(), nn.Conv2d(channels, 8, 1), nn.ReLU(), nn.Conv2d(8, 1, 1))

    def forward(self, x):
        v = h = x
        for block in self.blocks:
            v, h = block(v, h)
        return self.head(h)


def nll(output, target):
    return F.binary_cross_entropy_with_logits(output, target)
