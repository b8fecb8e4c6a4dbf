"""Deep count autoencoder in PyTorch."""

import torch
from torch import nn
from torch.nn import functional as F


class SizeFactors(nn.Module):
    def __init__(self, usual=60.0, momentum=0.8):
        super().__init__()
        self.momentum = momentum
        self.register_buffer("usual", torch.tensor(usual))

    def forward(self, counts):
        total = counts.sum(-1, keepdim=True)
        size = total / self.usual
        if self.training:
            with torch.no_grad():
                self.usual = self.momentum * self.usual + (1 - self.momentum) * total.mean()
        return size, torch.log1p(counts / size)


class Net(nn.Module):
    def __init__(self, genes=40, hidden=24, code=8):
        super().__init__()
        self.size_factors = SizeFactors()
        self.encoder = nn.Sequential(nn.Linear(genes, hidden), nn.ReLU(), nn.Linear(hidden, code), nn.Tanh())
        self.decoder = nn.Sequential(nn.Linear(code, hidden), nn.ReLU())
        self.mean = nn.Linear(hidden, genes)
        self.dispersion = nn.Linear(hidden, genes)
        self.dropped = nn.Linear(hidden, genes)

    def forward(self, counts):
        size, x = self.size_factors(counts)
        x = self.decoder(self.encoder(x))
        mean = size * self.mean(x).clamp(-8, 8).exp()
        theta = F.softplus(self.dispersion(x)) + 1e-3
        return torch.cat([mean, theta, self.dropped(x).sigmoid()], dim=-1)


def zinb(outputs, counts, eps=1e-8):
    mean, theta, dropped = outputs.chunk(3, dim=-1)
    log_both = (theta + mean + eps).log()
    log_ratio = (theta + eps).log() - log_both
    nb = torch.lgamma(counts + theta) - torch.lgamma(theta) - torch.lgamma(counts + 1)
    nb = nb + theta * log_ratio + counts * ((mean + eps).log() - log_both)
    zero = dropped + (1 - dropped) * (theta * log_ratio).exp()
    return torch.where(counts < 0.5, -(zero + eps).log(), -nb).mean()
