"""A unitary recurrent network in PyTorch."""

import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


class UnitaryRNN(nn.Module):
    def __init__(self, inputs, units):
        super().__init__()
        self.kernel = nn.Linear(inputs, 2 * units, bias=False)
        self.angle0, self.angle1, self.angle2 = (
            nn.Parameter(torch.empty(units).uniform_(-math.pi, math.pi)) for _ in range(3)
        )
        self.mirror0, self.mirror1 = (nn.Parameter(torch.empty(2, units).uniform_(-1, 1)) for _ in range(2))
        self.bias = nn.Parameter(torch.zeros(units))
        self.start = nn.Parameter(torch.empty(2, units).uniform_(-1, 1))
        self.register_buffer("permutation", torch.from_numpy(np.random.default_rng(7).permutation(units)))

    @staticmethod
    def rotate(h, angle):
        return h * torch.polar(torch.ones_like(angle), angle)

    @staticmethod
    def reflect(h, vector):
        v = torch.complex(*vector)
        along = (v.real * h.real + v.imag * h.imag).sum(-1, keepdim=True)
        return h - 2 * along * v / vector.square().sum()

    def transition(self, h):
        h = torch.fft.fft(self.rotate(h, self.angle0), norm="ortho")
        h = self.reflect(h, self.mirror0)
        h = torch.zeros_like(h).index_copy(1, self.permutation, h)
        h = torch.fft.ifft(self.rotate(h, self.angle1), norm="ortho")
        return self.rotate(self.reflect(h, self.mirror1), self.angle2)

    def forward(self, x):
        h = torch.complex(*self.start).expand(len(x), -1)
        for row in self.kernel(x).unbind(1):
            h = self.transition(h) + torch.complex(*row.chunk(2, dim=-1))
            size = h.abs()
            h = h * (F.relu(size + self.bias) / (size + 1e-5))
        return torch.cat([h.real, h.imag], dim=-1)


class Net(nn.Module):
    def __init__(self, units=16):
        super().__init__()
        self.rnn = UnitaryRNN(2, units)
        self.sum = nn.Linear(2 * units, 1)

    def forward(self, x):
        return self.sum(self.rnn(x))
