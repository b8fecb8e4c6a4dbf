import torch
import torch.nn.functional as F
from torch import nn

GRID, ANCHORS, LANES = 16, 8, 4


class Unit(nn.Module):
    def __init__(self, cin, cout, k, stride=1):
        super().__init__()
        total = k - stride if k > stride else 0
        lo = total // 2
        self.pad = (lo, total - lo, lo, total - lo)
        self.conv = nn.Conv2d(cin, cout, k, stride, bias=False)
        self.norm = nn.GroupNorm(4, cout, eps=1e-3)

    def forward(self, x):
        return self.norm(self.conv(F.pad(x, self.pad)))


class BasicBlock(nn.Module):
    def __init__(self, cin, cout, stride=1):
        super().__init__()
        self.a = Unit(cin, cout, 3, stride)
        self.b = Unit(cout, cout, 3)
        self.down = Unit(cin, cout, 1, stride) if stride != 1 or cin != cout else nn.Identity()

    def forward(self, x):
        return F.relu(self.down(x) + self.b(F.relu(self.a(x))))


class SpatialMessagePassing(nn.Module):
    def __init__(self, channels, width=5):
        super().__init__()
        across, along = (1, width), (width, 1)
        self.conv_d = nn.Conv2d(channels, channels, across, padding=(0, width // 2), bias=False)
        self.conv_u = nn.Conv2d(channels, channels, across, padding=(0, width // 2), bias=False)
        self.conv_r = nn.Conv2d(channels, channels, along, padding=(width // 2, 0), bias=False)
        self.conv_l = nn.Conv2d(channels, channels, along, padding=(width // 2, 0), bias=False)

    def forward(self, x):
        x = self.propagate(x, self.conv_d, dim=2)
        x = self.propagate(x, self.conv_u, dim=2, reverse=True)
        x = self.propagate(x, self.conv_r, dim=3)
        x = self.propagate(x, self.conv_l, dim=3, reverse=True)
        return x

    @staticmethod
    def propagate(x, conv, dim, reverse=False):
        parts = list(x.split(1, dim=dim))
        if reverse:
            parts = parts[::-1]
        out = [parts[0]]
        for before, part in zip(parts, parts[1:]):
            out.append(part + F.relu(conv(before)))
        if reverse:
            out = out[::-1]
        return torch.cat(out, dim=dim)


class LaneNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = Unit(3, 16, 5, 2)
        self.pool = nn.MaxPool2d(3, 2)
        self.layer1 = BasicBlock(16, 16)
        self.layer2 = BasicBlock(16, 32, 2)
        self.mp = SpatialMessagePassing(32)
        self.reduce = nn.Conv2d(32, 6, 1)
        self.head = nn.Sequential(
            nn.Linear(6 * 6 * 12, 96), nn.ReLU(), nn.Linear(96, ANCHORS * LANES * (GRID + 1))
        )

    def forward(self, image):
        x = image.permute(0, 3, 1, 2)
        x = F.relu(self.stem(x))
        x = self.pool(F.pad(x, (0, 1, 0, 1), value=float("-inf")))
        x = self.mp(self.layer2(self.layer1(x)))
        x = F.relu(self.reduce(x)).permute(0, 2, 3, 1).flatten(1)
        return self.head(x).unflatten(1, (ANCHORS, LANES, GRID + 1))


def loss(outputs, targets):
    targets = targets.long()
    nll = F.cross_entropy(outputs.movedim(-1, 1), targets, reduction="none")
    cls = ((1 - torch.exp(-nll)) ** 2 * nll).mean()
    sim = F.smooth_l1_loss(outputs[:, 1:], outputs[:, :-1])

    prob = outputs.softmax(-1)[..., :GRID]
    loc = prob @ torch.arange(GRID, dtype=outputs.dtype, device=outputs.device)
    second = loc.diff(n=2, dim=1)
    valid = (targets < GRID).unfold(1, 3, 1).all(-1)
    shp = (second.abs() * valid).sum() / valid.sum().clamp(min=1)
    return cls + 0.3 * sim + 0.2 * shp


def build():
    return LaneNet()
