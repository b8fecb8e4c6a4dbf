"""Phased LSTM over photometry of variable stars."""

import math

import torch
import torch.nn.functional as F
from torch import nn

CLASSES, BANDS, UNITS, LEAK = 4, 3, 20, 0.01


class TimeGate(nn.Module):
    def __init__(self, units, longest):
        super().__init__()
        self.shift = nn.Parameter(torch.empty(units).uniform_(0.0, 5.0))
        self.log_period = nn.Parameter(torch.empty(units).uniform_(0.0, math.log(longest)))
        self.open_logit = nn.Parameter(torch.empty(units).uniform_(-1.5, -0.5))

    def forward(self, t):
        """t (batch, steps) -> (batch, steps, units)"""
        cycles = (t.unsqueeze(-1) - self.shift) / self.log_period.exp()
        phase = cycles - cycles.floor().detach()
        slope = 2.0 / self.open_logit.sigmoid()
        u = phase * slope
        return torch.where(u < 1.0, u, torch.where(u < 2.0, 2.0 - u, LEAK * phase))


class PhasedLSTM(nn.Module):
    def __init__(self, width, units, longest, reverse=False):
        super().__init__()
        self.units, self.reverse = units, reverse
        self.gates = nn.Linear(width + units, 4 * units)
        self.clock = TimeGate(units, longest)

    def forward(self, x, t, seen):
        k = self.clock(t) * seen.unsqueeze(-1)
        h = c = x.new_zeros(len(x), self.units)
        steps = list(zip(x.unbind(1), k.unbind(1)))
        out = []
        for x_t, k_t in reversed(steps) if self.reverse else steps:
            i, f, g, o = self.gates(torch.cat([x_t, h], dim=1)).chunk(4, dim=1)
            fresh = (f + 1).sigmoid() * c + i.sigmoid() * g.tanh()
            h = torch.lerp(h, o.sigmoid() * fresh.tanh(), k_t)
            c = torch.lerp(c, fresh, k_t)
            out.append(h)
        if self.reverse:
            out.reverse()
        return torch.stack(out, dim=1)


class StarNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.band = nn.Embedding(BANDS + 1, 6)
        self.embed = nn.Linear(2 + 6, 16)
        self.past = PhasedLSTM(16, UNITS, 60.0)
        self.future = PhasedLSTM(16, UNITS, 30.0, reverse=True)
        self.attend = nn.Linear(2 * UNITS, 1)
        self.head = nn.Sequential(nn.Linear(4 * UNITS, 24), nn.ReLU(), nn.Linear(24, CLASSES))

    def forward(self, times, flux, band):
        band = band.long()
        mask = band.ne(0)
        seen = mask.to(flux.dtype)
        x = self.embed(torch.cat([flux, self.band(band)], dim=-1)).tanh()
        to_go = times.amax(dim=1, keepdim=True) - times
        s = torch.cat([self.past(x, times, seen), self.future(x, to_go, seen)], dim=-1)
        a = F.softmax(self.attend(s).squeeze(-1).masked_fill(~mask, float("-inf")), dim=1)
        picked = torch.einsum("bt,btd->bd", a, s)
        average = torch.einsum("bt,btd->bd", seen / seen.sum(1, keepdim=True), s)
        return self.head(torch.cat([picked, picked - average], dim=1))


def build():
    return StarNet()
