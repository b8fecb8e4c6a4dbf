"""The Hamiltonian network in PyTorch; the gradient of tanh layers is written out, no autograd in the forward pass."""

import torch
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.hidden1 = nn.Linear(4, width)
        self.hidden2 = nn.Linear(width, width)
        self.energy = nn.Linear(width, 1, bias=False)
        self.mass = nn.Parameter(nn.init.xavier_uniform_(torch.empty(2, 2)))
        self.damping = nn.Parameter(torch.zeros(2))
        for layer in (self.hidden1, self.hidden2, self.energy):
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)

    def slope(self, state):
        a = torch.tanh(self.hidden1(state))
        b = torch.tanh(self.hidden2(a))
        x = (1 - b.square()) * self.energy.weight
        x = (1 - a.square()) * (x @ self.hidden2.weight)
        return x @ self.hidden1.weight

    def forward(self, state):
        dq, dp = self.slope(state).chunk(2, dim=1)
        dp = dp + state[:, 2:] @ self.mass @ self.mass.T
        return torch.cat([dp, -dq - F.softplus(self.damping) * dp], dim=1)
