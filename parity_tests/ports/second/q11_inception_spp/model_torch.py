import torch
from torch import nn


def conv(i, o, k):
    return nn.Sequential(nn.Conv2d(i, o, k, padding="same"), nn.ReLU(inplace=True))


class Inception(nn.Module):
    def __init__(self, inputs, ch1x1, ch3x3red, ch3x3, ch5x5red, ch5x5, pool_proj):
        super().__init__()
        self.branch1 = conv(inputs, ch1x1, 1)
        self.branch2 = nn.Sequential(conv(inputs, ch3x3red, 1), conv(ch3x3red, ch3x3, 3))
        self.branch3 = nn.Sequential(conv(inputs, ch5x5red, 1), conv(ch5x5red, ch5x5, 5))
        self.branch4 = nn.Sequential(nn.MaxPool2d(3, stride=1, padding=1), conv(inputs, pool_proj, 1))

    def forward(self, x):
        return torch.cat([b(x) for b in (self.branch1, self.branch2, self.branch3, self.branch4)], 1)


class SpatialPyramidPool(nn.Module):
    def __init__(self, levels=(1, 2, 4)):
        super().__init__()
        self.pools = nn.ModuleList(nn.AdaptiveMaxPool2d(n) for n in levels)

    def forward(self, x):
        # rows, columns, channels: the order in which Keras flattens
        return torch.cat([p(x).permute(0, 2, 3, 1).flatten(1) for p in self.pools], 1)


def net(classes=10):
    return nn.Sequential(
        nn.ZeroPad2d((0, 1, 0, 1)),
        nn.Conv2d(3, 16, 3, stride=2),
        nn.ReLU(),
        Inception(16, 8, 8, 12, 4, 6, 6),
        Inception(32, 8, 8, 16, 4, 8, 8),
        SpatialPyramidPool(),
        nn.Linear(40 * 21, 48),
        nn.ReLU(),
        nn.Linear(48, classes),
    )
