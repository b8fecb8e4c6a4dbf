"""The same, time in the middle axis all the way; a causal convolution is two products of shifted windows."""

import torch
from torch import nn
from torch.nn import functional as F


class Shifted(nn.Module):
    """y[t] = x[t - d] @ W[0] + x[t] @ W[1] + b."""

    def __init__(self, inputs, outputs, dilation):
        super().__init__()
        self.dilation = dilation
        self.weight = nn.Parameter(torch.empty(2, inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(outputs))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, x):
        past = F.pad(x, (0, 0, self.dilation, 0))[:, : x.shape[1]]
        return past @ self.weight[0] + x @ self.weight[1] + self.bias


class WaveNet(nn.Module):
    def __init__(self, channels=16, skip=12, dilations=(1, 2, 4, 8)):
        super().__init__()
        self.head = nn.Linear(skip, 6)
        self.post = nn.Linear(skip, skip)
        self.start = nn.Linear(3, channels)
        self.gates = nn.ModuleList(Shifted(channels, channels, d) for d in dilations)
        self.filters = nn.ModuleList(Shifted(channels, channels, d) for d in dilations)
        self.residuals = nn.ModuleList(nn.Linear(channels, channels) for _ in dilations)
        self.skips = nn.ModuleList(nn.Linear(channels, skip) for _ in dilations)

    def forward(self, x):
        x = self.start(x)
        total = 0
        for filtered, gate, residual, skip in zip(self.filters, self.gates, self.residuals, self.skips):
            z = torch.tanh(filtered(x)) * torch.sigmoid(gate(x))
            total = total + skip(z[:, -1])  # only the last hour is ever used
            x = x + residual(z)
        return self.head(F.relu(self.post(F.relu(total))))
