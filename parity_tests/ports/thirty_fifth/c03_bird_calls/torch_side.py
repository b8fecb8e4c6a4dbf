"""Bird calls: frozen conv trunk, GRU head."""

import torch
from torch import nn


def conv_block(cin, cout, k):
    return nn.Sequential(
        nn.Conv1d(cin, cout, k, padding=k // 2, bias=False),
        nn.BatchNorm1d(cout, eps=1e-3, momentum=0.01),
        nn.ReLU(inplace=True),
        nn.MaxPool1d(2),
    )


class BirdNet(nn.Module):
    def __init__(self, mels=20, species=4):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.BatchNorm1d(mels, eps=1e-3, momentum=0.01),
            conv_block(mels, 24, 5),
            conv_block(24, 32, 3),
        )
        self.trunk.requires_grad_(False)  # only the head learns
        self.gru = nn.GRU(32, 16, batch_first=True)
        self.species = nn.Linear(16, species)

    def forward(self, logmel):
        x = self.trunk(logmel.transpose(1, 2)).transpose(1, 2)
        _, h = self.gru(x)
        return self.species(h[-1])


def build():
    return BirdNet()


def optimizer(params):
    return torch.optim.SGD([p for p in params if p.requires_grad], lr=0.05, momentum=0.9, nesterov=True)
