"""CPC pretraining of a seismogram encoder, with the event classifier trained along."""

import torch
import torch.nn.functional as F
from torch import nn

HORIZONS = (1, 2, 4, 8, 12)
TEMPERATURE = 0.2


class Encoder(nn.Sequential):
    def __init__(self, width):
        super().__init__(
            nn.Conv1d(3, 16, 8, stride=4),
            nn.GroupNorm(4, 16, eps=1e-3),
            nn.SiLU(),
            nn.Conv1d(16, width, 4, stride=2),
            nn.GroupNorm(4, width, eps=1e-3),
            nn.SiLU(),
            nn.Conv1d(width, width, 1),
        )


class CPC(nn.Module):
    def __init__(self, width=24, context=28, classes=3):
        super().__init__()
        self.encoder = Encoder(width)
        self.gru = nn.GRU(width, context, batch_first=True)
        self.ahead = nn.ModuleList(nn.Linear(context, width, bias=False) for _ in HORIZONS)
        self.classify = nn.Linear(context, classes)

    def forward(self, trace):
        z = self.encoder(trace.transpose(1, 2)).transpose(1, 2)
        c, last = self.gru(z)
        predicted = torch.stack([p(c) for p in self.ahead], dim=1)
        return z, c, predicted, self.classify(last[0])


def info_nce(z, predicted):
    """z (B, T, D), predicted (B, horizons, T, D)"""
    z = F.normalize(z, dim=-1)
    predicted = F.normalize(predicted, dim=-1)
    logits = torch.einsum("bhtd,bsd->bhts", predicted, z) / TEMPERATURE
    n = z.shape[1]
    ahead = torch.arange(n, device=z.device) + torch.tensor(HORIZONS, device=z.device)[:, None]
    ahead = ahead.masked_fill(ahead >= n, -100).expand(len(z), -1, -1)
    return F.cross_entropy(logits.flatten(0, 2), ahead.flatten(), ignore_index=-100)


def step(model, batch):
    trace, y = batch
    z, _, predicted, logits = model(trace)
    return info_nce(z, predicted) + 0.3 * F.cross_entropy(logits, y.long())


def build():
    return CPC()
