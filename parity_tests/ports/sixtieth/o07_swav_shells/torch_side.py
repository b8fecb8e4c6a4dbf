"""SwAV for outlines of shells."""

import torch
import torch.nn.functional as F
from torch import nn


def ring(cin, cout):
    return nn.Sequential(
        nn.Conv1d(cin, cout, 5, stride=2, padding=2, padding_mode="circular", bias=False),
        nn.GroupNorm(4, cout, eps=1e-3),
        nn.SiLU(),
    )


class SwAV(nn.Module):
    def __init__(self, prototypes=10, species=6):
        super().__init__()
        self.trunk = nn.Sequential(ring(1, 16), ring(16, 24), ring(24, 32))
        self.probe = nn.Linear(64, species)
        self.head = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 12))
        self.prototypes = nn.Parameter(torch.randn(prototypes, 12))

    def embed(self, view):
        x = self.trunk((view - view.mean(1, keepdim=True)).unsqueeze(1))
        return torch.cat((x.mean(-1), x.amax(-1)), 1)

    def compare(self, h):
        return F.normalize(self.head(h), dim=1) @ self.prototypes.T

    def forward(self, view_a, view_b, view_small):
        return self.probe(self.embed(view_a).detach())


@torch.no_grad()
def assign(scores, sharpness=0.05, rounds=3):
    q = (scores / sharpness).exp()
    q /= q.sum()
    samples, prototypes = q.shape
    for _ in range(rounds):
        q /= samples * q.sum(1, keepdim=True)
        q /= prototypes * q.sum(0, keepdim=True)
    return q * samples


def step(model, batch):
    views, species = batch
    with torch.no_grad():
        model.prototypes.copy_(F.normalize(model.prototypes, dim=1))

    h_a = model.embed(views["view_a"])
    h_b = model.embed(views["view_b"])
    h_s = model.embed(views["view_small"])
    a, b, s = model.compare(torch.cat((h_a, h_b))).chunk(2) + (model.compare(h_s),)
    log_a, log_b, log_s = (F.log_softmax(v / 0.1, dim=1) for v in (a, b, s))
    q_a, q_b = assign(a), assign(b)

    swapped = -(q_a * (log_b + log_s) + q_b * (log_a + log_s)).sum(1).mean() / 4
    return swapped + F.cross_entropy(model.probe(h_a.detach()), species.long())


def build():
    return SwAV()
