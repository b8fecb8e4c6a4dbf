"""GhostNet for tile defects."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

Norm = partial(nn.BatchNorm2d, eps=1e-3, momentum=0.1)


class SameDepthwise(nn.Conv2d):
    """Strided depthwise convolution whose surplus padding lies at the bottom and on the right."""

    def __init__(self, channels, kernel, stride):
        super().__init__(channels, channels, kernel, stride=stride, groups=channels, bias=False)

    def forward(self, x):
        pads = []
        for n, k, s in zip(reversed(x.shape[2:]), reversed(self.kernel_size), reversed(self.stride)):
            total = max((-(-n // s) - 1) * s + k - n, 0)
            pads += [total // 2, total - total // 2]
        return super().forward(F.pad(x, pads))


class Ghost(nn.Module):
    def __init__(self, cin, cout, act=True, ratio=3):
        super().__init__()
        self.cout = cout
        k = -(-cout // ratio)
        act = nn.ReLU if act else nn.Identity
        self.intrinsic = nn.Sequential(nn.Conv2d(cin, k, 1, bias=False), Norm(k), act())
        self.cheap = nn.Sequential(
            nn.Conv2d(k, k * (ratio - 1), 3, padding=1, groups=k, bias=False), Norm(k * (ratio - 1)), act()
        )

    def forward(self, x):
        x = self.intrinsic(x)
        return torch.cat((x, self.cheap(x)), 1).narrow(1, 0, self.cout)


class Gate(nn.Module):
    def __init__(self, c, reduction=4):
        super().__init__()
        mid = max(4, c // reduction)
        self.fc1 = nn.Linear(c, mid)
        self.fc2 = nn.Linear(mid, c)

    def forward(self, x):
        s = F.hardsigmoid(self.fc2(F.relu(self.fc1(x.mean((2, 3))))))
        return x * s[:, :, None, None]


class Bottleneck(nn.Module):
    def __init__(self, cin, hidden, cout, kernel, stride, gate):
        super().__init__()
        if stride == 1 and cin == cout:
            self.shortcut = nn.Identity()
        else:
            self.shortcut = nn.Sequential(
                SameDepthwise(cin, kernel, stride), Norm(cin), nn.Conv2d(cin, cout, 1, bias=False), Norm(cout)
            )
        body = [Ghost(cin, hidden)]
        if stride > 1:
            body += [SameDepthwise(hidden, kernel, stride), Norm(hidden)]
        if gate:
            body.append(Gate(hidden))
        body.append(Ghost(hidden, cout, act=False))
        self.body = nn.Sequential(*body)

    def forward(self, x):
        return self.body(x) + self.shortcut(x)


class GhostNet(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        self.classifier = nn.Sequential(nn.Linear(48, 32), nn.ReLU(), nn.Linear(32, classes))
        self.stem = nn.Sequential(
            nn.ZeroPad2d((0, 1, 0, 1)), nn.Conv2d(1, 8, 3, stride=2, bias=False), Norm(8), nn.ReLU()
        )
        self.stages = nn.Sequential(
            Bottleneck(8, 16, 8, 3, 1, False),
            Bottleneck(8, 24, 14, 3, 2, False),
            Bottleneck(14, 28, 14, 3, 1, True),
            Bottleneck(14, 40, 20, 5, 2, True),
        )
        self.neck = nn.Sequential(nn.Conv2d(20, 48, 1, bias=False), Norm(48), nn.ReLU())

    def forward(self, tile):
        x = (tile.unsqueeze(1) - 0.54) / 0.21
        x = self.neck(self.stages(self.stem(x)))
        return self.classifier(x.flatten(2).mean(-1))


def build():
    return GhostNet()
