import math

import torch
from torch import nn


class NeuralODE(nn.Module):
    def __init__(self, steps=4):
        super().__init__()
        self.encode = nn.Linear(4, 8)
        self.field = nn.Sequential(nn.Linear(9, 20), nn.Tanh(), nn.Linear(20, 8))
        self.decode = nn.Linear(8, 1)
        self.steps = steps

    def slope(self, t, h):
        return self.field(torch.cat([h, h.new_full((len(h), 1), t)], 1))

    def forward(self, x):
        h = self.encode(x)
        dt = 1 / self.steps
        for i in range(self.steps):
            t = i * dt
            k1 = self.slope(t, h)
            k2 = self.slope(t + dt / 2, h + dt / 2 * k1)
            k3 = self.slope(t + dt / 2, h + dt / 2 * k1)
            k4 = self.slope(t + dt, h + dt * k3)
            h = h + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return self.decode(h)


def optimizer(parameters):
    sgd = torch.optim.SGD(parameters, lr=0.05)
    cosine = torch.optim.lr_scheduler.LambdaLR(
        sgd, lambda step: 0.5 * (1 + math.cos(math.pi * min(step + 1, 50) / 50))
    )
    return sgd, cosine
