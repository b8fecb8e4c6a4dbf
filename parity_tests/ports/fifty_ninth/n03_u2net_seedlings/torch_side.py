import torch
from torch import nn
from torch.nn import functional as F


def double(x):
    return F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)


class Unit(nn.Module):
    """norm(conv(x)), rectified. With two inputs the kernel is applied to each by its own half."""

    def __init__(self, n_in, n_out, dilation=1, n_skip=0):
        super().__init__()
        self.norm = nn.BatchNorm2d(n_out, eps=1e-5, momentum=0.1)
        geometry = dict(kernel_size=3, padding=dilation, dilation=dilation, bias=False)
        self.skip = nn.Conv2d(n_skip, n_out, **geometry) if n_skip else None
        self.main = nn.Conv2d(n_in, n_out, **geometry)

    def forward(self, x, skip=None):
        y = self.main(x)
        if skip is not None:
            y = y + self.skip(skip)
        return self.norm(y).relu_()


class Nest(nn.Module):
    """One level of a residual U, which holds the deeper levels inside."""

    def __init__(self, n_in, mid, n_out, levels, pooled=False):
        super().__init__()
        self.pooled = pooled
        self.inner = Nest(mid, mid, mid, levels - 1, True) if levels > 1 else Unit(mid, mid, 2)
        self.leave = Unit(mid, n_out, n_skip=mid)
        self.enter = Unit(n_in, mid)

    def forward(self, x):
        if self.pooled:
            x = F.max_pool2d(x, 2)
        x = self.enter(x)
        x = self.leave(self.inner(x), x)
        return double(x) if self.pooled else x


class Flat(nn.Module):
    def __init__(self, n_in, mid, n_out):
        super().__init__()
        self.back = nn.ModuleList([Unit(mid, mid, 2, n_skip=mid), Unit(mid, n_out, 1, n_skip=mid)])
        self.there = nn.ModuleList([Unit(n_in, mid, 1), Unit(mid, mid, 2), Unit(mid, mid, 4)])

    def forward(self, x):
        trail = []
        for unit in self.there:
            x = unit(x)
            trail.append(x)
        x = trail.pop()
        for unit in self.back:
            x = unit(x, trail.pop())
        return x


class Residual(nn.Module):
    def __init__(self, first, body):
        super().__init__()
        self.body, self.first = body, first

    def forward(self, *x):
        y = self.first(*x)
        return y + self.body(y)


class SeedlingNet(nn.Module):
    def __init__(self, w=8, m=4):
        super().__init__()
        self.mix = nn.Conv2d(3, 1, 1)
        self.probes = nn.ModuleList(nn.Conv2d(w, 1, 3, padding=1) for _ in range(3))
        self.up_path = nn.ModuleList(
            [
                Residual(Unit(w, w, n_skip=w), Nest(w, m, w, 2)),
                Residual(Unit(w, w, n_skip=w), Nest(w, m, w, 3)),
            ]
        )
        self.down_path = nn.ModuleList(
            [
                Residual(Unit(1, w), Nest(w, m, w, 3)),
                Residual(Unit(w, w), Nest(w, m, w, 2)),
                Residual(Unit(w, w), Flat(w, m, w)),
            ]
        )

    def forward(self, view):
        x = view.unsqueeze(1)
        trail = []
        for i, stage in enumerate(self.down_path):
            x = stage(F.max_pool2d(x, 2) if i else x)
            trail.append(x)
        levels = [trail.pop()]
        for stage in self.up_path:
            levels.append(stage(double(levels[-1]), trail.pop()))
        maps = []
        for probe, level in zip(self.probes, levels):
            m = probe(level)
            while m.shape[-1] < view.shape[-1]:
                m = double(m)
            maps.insert(0, m)
        maps = torch.cat(maps, 1)
        return torch.cat([self.mix(maps), maps], 1)


def loss(outputs, targets):
    weights = outputs.new_tensor([1.0, 0.8, 0.6, 0.4])
    bce = F.binary_cross_entropy_with_logits(
        outputs, targets.unsqueeze(1).expand_as(outputs), reduction="none"
    )
    bce = bce.mean((0, 2, 3)) @ weights
    p, t = outputs[:, 0].sigmoid().flatten(1), targets.flatten(1)
    both = torch.linalg.vecdot(p, t)
    either = (p + t).sum(1) - both
    return bce + (1 - (both + 1) / (either + 1)).mean()


def build():
    return SeedlingNet()
