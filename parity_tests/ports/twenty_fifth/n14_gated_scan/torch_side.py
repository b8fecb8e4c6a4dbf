import torch
import torch.nn.functional as F
from torch import nn


def scan(forget, write, h):
    out = []
    for f, w in zip(forget.unbind(1), write.unbind(1)):
        h = torch.addcmul(w, f, h)
        out.append(h)
    return torch.stack(out, 1)


class GatedScan(nn.Module):
    def __init__(self, n_in, units):
        super().__init__()
        self.gates = nn.Linear(n_in, 3 * units)
        self.start = nn.Parameter(torch.randn(units) * 0.5)

    def forward(self, x):
        f, w, c = self.gates(x).chunk(3, dim=-1)
        return scan(torch.sigmoid(f + 1), torch.sigmoid(w) * torch.tanh(c), self.start.expand(x.shape[0], -1))


class Gestures(nn.Module):
    def __init__(self, n_in=6, units=8, width=14, classes=5):
        super().__init__()
        self.forwards = GatedScan(n_in, units)
        self.backwards = GatedScan(n_in, units)
        self.smooth = nn.Conv1d(2 * units, width, 3, padding=1)
        self.rate = nn.Linear(width, 1)
        self.gesture = nn.Linear(width, classes)

    def pool(self, h):
        rate = 0.2 * F.softplus(self.rate(h))
        weight = torch.exp(rate - rate.cumsum(1))
        return (weight * h).sum(1) / weight.sum(1)

    def forward(self, x):
        h = torch.cat([self.forwards(x), self.backwards(x.flip(1))], dim=-1)
        h = torch.tanh(self.smooth(h.transpose(1, 2))).transpose(1, 2)
        return self.gesture(self.pool(h))


def build():
    return Gestures()
