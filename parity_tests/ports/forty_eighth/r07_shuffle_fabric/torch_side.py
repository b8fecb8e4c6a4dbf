"""Weight-standardised, group-normalised ShuffleNetV2 for fabric inspection."""

import torch
import torch.nn.functional as F
from torch import nn


class StdConv2d(nn.Conv2d):
    def forward(self, x):
        var, mean = torch.var_mean(self.weight, dim=(1, 2, 3), correction=0, keepdim=True)
        scale = (var * self.weight[0].numel()).clamp(min=1e-4).rsqrt()
        return self._conv_forward(x, (self.weight - mean) * scale, self.bias)


def pointwise(cin, cout):
    return nn.Sequential(StdConv2d(cin, cout, 1, bias=False), nn.GroupNorm(4, cout), nn.ReLU(inplace=True))


def depthwise(channels, stride):
    pad = nn.ZeroPad2d((0, 1, 0, 1)) if stride == 2 else nn.ZeroPad2d(1)
    conv = nn.Conv2d(channels, channels, 3, stride=stride, groups=channels, bias=False)
    return nn.Sequential(pad, conv, nn.GroupNorm(4, channels))


class ShuffleUnit(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        half = cout // 2
        self.left = nn.Identity() if stride == 1 else nn.Sequential(depthwise(cin, 2), pointwise(cin, half))
        inner = half if stride == 1 else cin
        self.right = nn.Sequential(pointwise(inner, half), depthwise(half, stride), pointwise(half, half))
        self.stride = stride

    def forward(self, x):
        a, b = x.chunk(2, dim=1) if self.stride == 1 else (x, x)
        y = torch.cat((self.left(a), self.right(b)), dim=1)
        return y.unflatten(1, (2, -1)).transpose(1, 2).flatten(1, 2)


class GeneralisedMean(nn.Module):
    def __init__(self, p=3.0, eps=1e-4):
        super().__init__()
        self.exponent = nn.Parameter(torch.tensor([p]))
        self.eps = eps

    def forward(self, x):
        return x.clamp(min=self.eps).pow(self.exponent).mean(dim=(-2, -1)).pow(self.exponent.reciprocal())


class FabricNet(nn.Module):
    def __init__(self, classes=5, widths=(16, 32, 64), repeats=2):
        super().__init__()
        self.stem = nn.Sequential(
            nn.ZeroPad2d((0, 1, 0, 1)),
            StdConv2d(1, widths[0], 3, stride=2, bias=False),
            nn.GroupNorm(4, widths[0]),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2, ceil_mode=True),
        )
        units = []
        for cin, cout in zip(widths, widths[1:]):
            units.append(ShuffleUnit(cin, cout, 2))
            units += [ShuffleUnit(cout, cout, 1) for _ in range(repeats)]
        self.body = nn.Sequential(*units)
        self.final = pointwise(widths[-1], 64)
        self.pool = GeneralisedMean()
        self.fc = nn.Linear(64, classes)

    def forward(self, picture):
        x = self.stem(picture.unsqueeze(1))
        return self.fc(self.pool(self.final(self.body(x))))


def build():
    return FabricNet()


def loss(outputs, targets):
    return F.cross_entropy(outputs, targets.reshape(-1).long(), label_smoothing=0.1)


def optimizer(parameters):
    return torch.optim.SGD(parameters, lr=2**-9, momentum=0.875, nesterov=True)
