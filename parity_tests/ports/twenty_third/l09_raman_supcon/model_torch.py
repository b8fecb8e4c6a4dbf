"""Supervised contrastive embedding of Raman spectra in PyTorch."""

import torch
import torch.nn.functional as F
from torch import nn

TEMPERATURE = 0.2


class Encoder(nn.Module):
    """MLP on the standardised spectrum, output on the unit sphere."""

    def __init__(self, n_bands=48, width=32, embed=10):
        super().__init__()
        self.fc1 = nn.Linear(n_bands, width)
        self.act1 = nn.PReLU(width, init=0.1)
        self.fc2 = nn.Linear(width, width)
        self.project = nn.Linear(width, embed)

    def forward(self, spectrum):
        x = F.layer_norm(spectrum, spectrum.shape[-1:], eps=1e-4)
        x = self.act1(self.fc1(x))
        x = x + F.gelu(self.fc2(x))
        x = self.project(x)
        return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-9)


def second_view(x, shift=2):
    """The spectrum moved by two bands (round the end), with another gain and offset."""
    return torch.cat([x[:, -shift:], x[:, :-shift]], dim=1) * 1.1 + 0.05


def supcon_loss(first, second, labels):
    """Supervised contrastive loss over both views of the batch.

    Row i of `sim` holds the similarities of anchor i with all samples; the
    positives are those with the label of the anchor, without the anchor.
    """
    z = torch.cat([first, second])
    labels = labels.repeat(2)
    sim = z @ z.T / TEMPERATURE
    # for numerical stability, the largest entry is the anchor with itself
    sim = sim - sim.max(dim=1, keepdim=True).values.detach()

    positive = labels.unsqueeze(0).eq(labels.unsqueeze(1))
    positive.fill_diagonal_(False)
    log_prob = sim - sim.exp().sum(dim=1, keepdim=True).log()
    picked = torch.where(positive, log_prob, torch.zeros_like(log_prob))
    return -(picked.sum(dim=1) / positive.sum(dim=1)).mean()


def step(model, batch):
    """Loss of one training step; batch is (spectra, labels)."""
    x, y = batch
    return supcon_loss(model(x), model(second_view(x)), y.view(-1))
