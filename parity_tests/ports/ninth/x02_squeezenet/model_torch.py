import torch
import torch.nn.functional as F
from torch import nn


class Fire(nn.Module):
    def __init__(self, inputs, squeeze, expand, bypass=False):
        super().__init__()
        self.squeeze = nn.Conv2d(inputs, squeeze, 1)
        self.expand1 = nn.Conv2d(squeeze, expand, 1)
        self.expand3 = nn.Conv2d(squeeze, expand, 3, padding=1)
        self.bypass = bypass

    def forward(self, x):
        s = self.squeeze(x).relu()
        out = torch.cat((self.expand1(s), self.expand3(s)), dim=1).relu()
        return x + out if self.bypass else out


class SamePool(nn.Module):
    def forward(self, x):
        pads = []
        for size in (x.shape[3], x.shape[2]):
            total = max((-(-size // 2) - 1) * 2 + 3 - size, 0)
            pads += [total // 2, total - total // 2]
        return F.max_pool2d(F.pad(x, pads, value=float("-inf")), 3, 2)


class Net(nn.Module):
    def __init__(self, classes=6):
        super().__init__()
        self.features = nn.Sequential(
            nn.ZeroPad2d((0, 1, 0, 1)),
            nn.Conv2d(3, 12, 3, stride=2),
            nn.ReLU(inplace=True),
            SamePool(),
            Fire(12, 4, 8),
            Fire(16, 4, 8, bypass=True),
            SamePool(),
            Fire(16, 6, 12),
            Fire(24, 6, 12, bypass=True),
        )
        self.classifier = nn.Sequential(
            nn.Dropout(0.3), nn.Conv2d(24, classes, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        )

    def forward(self, x):
        return self.classifier(self.features(x))
