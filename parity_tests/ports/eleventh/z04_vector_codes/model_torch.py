"""PyTorch port of the gesture classifier with a codebook."""

import torch
from torch import nn
from torch.nn import functional as F


class Quantizer(nn.Module):
    def __init__(self, entries, dim, beta=0.25):
        super().__init__()
        self.beta = beta
        self.book = nn.Embedding(entries, dim)
        nn.init.uniform_(self.book.weight, -0.5, 0.5)

    def forward(self, z):
        with torch.no_grad():
            index = torch.cdist(z.flatten(0, 1), self.book.weight).argmin(dim=1).view(z.shape[:2])
        q = self.book(index)
        penalty = F.mse_loss(q.detach(), z) + self.beta * F.mse_loss(q, z.detach())
        return z + (q - z).detach(), penalty


class AttentionPool(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.energy = nn.Linear(dim, 1, bias=False)

    def forward(self, h):
        weights = F.softmax(self.energy(h), dim=-1)
        return torch.einsum("ntk,ntc->nc", weights, h)


class Net(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv1d(3, 24, 4, stride=2, padding=1), nn.Tanh(), nn.Conv1d(24, 10, 3, padding=1)
        )
        self.vq = Quantizer(12, 10)
        self.decoder = nn.Sequential(nn.Conv1d(10, 16, 3, padding=1), nn.ELU())
        self.pool = AttentionPool(16)
        self.classifier = nn.Linear(16, classes)

    def run(self, x):
        q, penalty = self.vq(self.encoder(x.transpose(1, 2)).transpose(1, 2))
        h = self.decoder(q.transpose(1, 2)).transpose(1, 2)
        return self.classifier(self.pool(h)), penalty

    def forward(self, x):
        return self.run(x)[0]


def step(model, batch):
    x, y = batch
    logits, penalty = model.run(x)
    return F.cross_entropy(logits, y.long()) + penalty
