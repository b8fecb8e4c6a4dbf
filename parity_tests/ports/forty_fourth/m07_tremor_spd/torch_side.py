"""SPDNet for tremor recordings."""

import math

import torch
from torch import nn


class ShrunkCovariance(nn.Module):
    def __init__(self):
        super().__init__()
        self.logit = nn.Parameter(torch.tensor(-2.0))

    def forward(self, x, recorded):
        """x: (batch, channels, samples)"""
        m = recorded.unsqueeze(1)
        n = m.sum(-1, keepdim=True)
        x = (x - (x * m).sum(-1, keepdim=True) / n) * m
        cov = x @ x.mT / (n - 1)
        target = cov.diagonal(dim1=-2, dim2=-1).mean(-1).view(-1, 1, 1) * torch.eye(
            x.shape[1], dtype=x.dtype, device=x.device
        )
        return torch.lerp(cov, target, self.logit.sigmoid())


class BiMap(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.weight = nn.Parameter(nn.init.orthogonal_(torch.empty(n_in, n_out)))

    def forward(self, s):
        q, r = torch.linalg.qr(self.weight)
        q = q * r.diagonal().sign()
        return q.T @ s @ q


class ReEig(nn.Module):
    def __init__(self, threshold=0.01):
        super().__init__()
        self.threshold = threshold

    def forward(self, s):
        values, vectors = torch.linalg.eigh(s)
        return (
            vectors
            @ torch.diag_embed((values + (values.square() + self.threshold**2).sqrt()) / 2)
            @ vectors.mT
        )


class LogEig(nn.Module):
    """To the tangent space, as a vector of the upper triangle."""

    def forward(self, s):
        values, vectors = torch.linalg.eigh(s)
        log = (vectors * values.log().unsqueeze(-2)) @ vectors.mT
        i, j = torch.triu_indices(s.shape[-1], s.shape[-1], device=s.device)
        return torch.where(i == j, log[:, i, j], math.sqrt(2) * log[:, i, j])


class TremorNet(nn.Module):
    def __init__(self, channels=8, filters=12, sizes=(9, 6), classes=3):
        super().__init__()
        n = sizes[-1]
        self.classifier = nn.Sequential(nn.Linear(n * (n + 1) // 2, 16), nn.ELU(), nn.Linear(16, classes))
        self.spd = nn.Sequential(BiMap(filters, sizes[0]), ReEig(), BiMap(*sizes), LogEig())
        self.pool = ShrunkCovariance()
        self.filters = nn.Sequential(
            nn.Conv1d(channels, filters, 1, bias=False),
            nn.Conv1d(filters, filters, 9, padding="same", groups=filters, bias=False),
            nn.Softsign(),
        )

    def forward(self, signal, recorded):
        x = self.filters(signal.transpose(1, 2))
        return self.classifier(self.spd(self.pool(x, recorded)))


def build():
    return TremorNet()
