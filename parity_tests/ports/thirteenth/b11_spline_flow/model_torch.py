"""Conditional spline flow."""

import math

import torch
from torch import nn
from torch.nn import functional as F

MIN_BIN, MIN_SLOPE = 1e-2, 1e-2


class Spline(nn.Module):
    """Rational-quadratic spline on [-bound, bound], identity outside."""

    def __init__(self, bins=5, bound=2.5):
        super().__init__()
        self.bins, self.bound = bins, bound
        self.edge = math.log(math.expm1(1.0))

    def knots(self, raw):
        share = MIN_BIN + (1 - MIN_BIN * self.bins) * raw.softmax(dim=-1)
        inner = share.cumsum(dim=-1)[..., :-1]
        return self.bound * (2 * F.pad(F.pad(inner, (1, 0)), (0, 1), value=1.0) - 1)

    def forward(self, x, raw):
        widths, heights, slopes = raw.split([self.bins, self.bins, self.bins - 1], dim=-1)
        xs, ys = self.knots(widths), self.knots(heights)
        slopes = F.softplus(F.pad(slopes, (1, 1), value=self.edge)) + MIN_SLOPE
        inside = x.abs() <= self.bound
        clipped = x.clamp(-self.bound, self.bound)
        k = torch.searchsorted(xs[..., 1:-1].contiguous(), clipped[..., None].contiguous(), right=True)
        x0, y0, d0 = (t.gather(-1, k).squeeze(-1) for t in (xs, ys, slopes))
        x1, y1, d1 = (t.gather(-1, k + 1).squeeze(-1) for t in (xs, ys, slopes))
        width, height = x1 - x0, y1 - y0
        delta = height / width
        u = (clipped - x0) / width
        v = u - u * u
        bottom = delta + (d0 + d1 - 2 * delta) * v
        y = y0 + height * (delta * u**2 + d0 * v) / bottom
        slope = delta**2 * (d1 * u**2 + 2 * delta * v + d0 * (1 - u) ** 2)
        logdet = slope.log() - 2 * bottom.log()
        return torch.where(inside, y, x), logdet * inside


class Flow(nn.Module):
    def __init__(self, features=4, kinds=2, couplings=3, hidden=14, bins=5):
        super().__init__()
        half = features // 2
        self.embed = nn.Embedding(kinds, 3)
        self.spline = Spline(bins)
        self.nets = nn.ModuleList()
        for _ in range(couplings):
            last = nn.Linear(hidden, half * (3 * bins - 1))
            self.nets.append(nn.Sequential(nn.Linear(half + 3, hidden), nn.Tanh(), last))
        self.register_buffer(
            "normalizer", torch.tensor(0.5 * features * math.log(2 * math.pi)), persistent=False
        )

    def forward(self, point, kind):
        context = self.embed(kind.long())
        left, right = point.chunk(2, dim=1)
        log_prob = -self.normalizer
        for net in self.nets:
            raw = net(torch.cat((left, context), 1)).unflatten(1, (right.shape[1], -1))
            right, logdet = self.spline(right, raw)
            log_prob = log_prob + logdet.sum(1)
            left, right = right, left
        return log_prob - 0.5 * torch.cat((left, right), 1).square().sum(1)


def step(model, batch):
    return -model(**batch).mean()
