import torch
import torch.nn.functional as F
from torch import nn


class BatchNorm2d(nn.BatchNorm2d):
    """Keeps the variance over N, as the original does."""

    def forward(self, x):
        if not self.training:
            return super().forward(x)
        mean, var = x.mean((0, 2, 3)), x.var((0, 2, 3), unbiased=False)
        with torch.no_grad():
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(var, self.momentum)
        return F.batch_norm(x, None, None, self.weight, self.bias, True, 0.0, self.eps)


class SamePad(nn.Module):
    def __init__(self, kernel, stride):
        super().__init__()
        self.kernel, self.stride = kernel, stride

    def forward(self, x):
        pads = []
        for size in (x.shape[-1], x.shape[-2]):
            total = max(0, (-(-size // self.stride) - 1) * self.stride + self.kernel - size)
            pads += [total // 2, total - total // 2]
        return F.pad(x, pads)


def conv_bn(cin, cout, kernel=1, stride=1, groups=1, act=True):
    parts = [
        SamePad(kernel, stride),
        nn.Conv2d(cin, cout, kernel, stride, groups=groups, bias=False),
        BatchNorm2d(cout, eps=1e-3, momentum=0.1),
    ]
    if act:
        parts.append(nn.Hardswish())
    return nn.Sequential(*parts)


class SqueezeExcite(nn.Module):
    def __init__(self, channels, ratio=4):
        super().__init__()
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(channels, channels // ratio, 1),
            nn.ReLU(),
            nn.Conv2d(channels // ratio, channels, 1),
            nn.Hardsigmoid(),
        )

    def forward(self, x):
        return x * self.gate(x)


class InvertedResidual(nn.Sequential):
    def __init__(self, cin, expand, cout, kernel, stride):
        super().__init__(
            conv_bn(cin, expand),
            conv_bn(expand, expand, kernel, stride, expand),
            SqueezeExcite(expand),
            conv_bn(expand, cout, act=False),
        )
        self.skip = stride == 1 and cin == cout

    def forward(self, x):
        y = super().forward(x)
        return x + y if self.skip else y


SETTINGS = [(16, 8, 3, 1), (16, 12, 5, 2), (24, 12, 3, 1)]


class Mobile(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.stem = conv_bn(3, 8, 3, 2)
        blocks, cin = [], 8
        for expand, cout, kernel, stride in SETTINGS:
            blocks.append(InvertedResidual(cin, expand, cout, kernel, stride))
            cin = cout
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(cin, 20),
            nn.Hardswish(),
            nn.Dropout(0.2),
            nn.Linear(20, classes),
        )

    def forward(self, image):
        return self.head(self.blocks(self.stem(image)))
