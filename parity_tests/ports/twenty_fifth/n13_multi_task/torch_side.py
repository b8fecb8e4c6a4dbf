from collections import OrderedDict

import torch
from torch import nn


class HardSigmoid(nn.Module):
    def forward(self, x):
        return (x / 6 + 0.5).clamp(0, 1)


class ChannelsLastFlatten(nn.Module):
    def forward(self, x):
        return x.movedim(1, -1).flatten(1)


def separable(a, b, bias=True):
    return nn.Sequential(
        OrderedDict(
            depthwise=nn.Conv2d(a, a, 3, padding=1, groups=a, bias=False),
            pointwise=nn.Conv2d(a, b, 1, bias=bias),
        )
    )


class SE(nn.Sequential):
    def __init__(self, width, few):
        super().__init__(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(width, few, 1),
            nn.ReLU6(),
            nn.Conv2d(few, width, 1),
            HardSigmoid(),
        )

    def forward(self, x):
        return x * super().forward(x)


class LabelAndDepth(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.5, 0.25, 0.375]).view(3, 1, 1), persistent=False)
        self.register_buffer("scale", torch.tensor([2.0, 4.0, 2.0]).view(3, 1, 1), persistent=False)
        self.stem = nn.Sequential(separable(3, 12), nn.PReLU(12), nn.AvgPool2d(3, stride=2, ceil_mode=True))
        self.body = nn.Sequential(separable(12, 12, bias=False), nn.PReLU(12))
        self.gate = SE(12, 3)
        self.heads = nn.ModuleDict(
            {
                "label": nn.Sequential(
                    ChannelsLastFlatten(),
                    nn.Linear(300, 24),
                    nn.Softsign(),
                    nn.Dropout(0.25),
                    nn.Linear(24, 6),
                ),
                "depth": nn.Sequential(nn.Conv2d(12, 1, 3, padding=1), nn.Softplus()),
            }
        )

    def forward(self, image):
        x = self.stem((image - self.mean) * self.scale)
        x = self.gate(x + self.body(x))
        return {name: head(x) for name, head in self.heads.items()}


def build():
    return LabelAndDepth()
