import torch
from torch import nn
from torch.nn import functional as F


class Norm(nn.BatchNorm2d):
    def __init__(self, channels):
        super().__init__(channels, eps=1e-4, momentum=0.1)

    def forward(self, x):
        if not self.training:
            return super().forward(x)
        with torch.no_grad():
            # TensorFlow keeps the biased variance
            self.running_mean.lerp_(x.mean((0, 2, 3)), self.momentum)
            self.running_var.lerp_(x.var((0, 2, 3), correction=0), self.momentum)
        return F.batch_norm(x, None, None, self.weight, self.bias, True, 0.0, self.eps)


def conv(inputs, outputs, size=3, rate=1):
    return nn.Conv2d(inputs, outputs, size, padding="same", dilation=rate, bias=False)


def unit(inputs, outputs, size=3, rate=1):
    return nn.Sequential(conv(inputs, outputs, size, rate), Norm(outputs), nn.ReLU())


def down(inputs, outputs):
    strided = nn.Conv2d(inputs, outputs, 3, stride=2, bias=False)
    return nn.Sequential(nn.ZeroPad2d((0, 1, 0, 1)), strided, Norm(outputs), nn.ReLU())


class Residual(nn.Module):
    def __init__(self, width, rate):
        super().__init__()
        self.body = nn.Sequential(unit(width, width, 3, rate), conv(width, width, 3, rate), Norm(width))

    def forward(self, x):
        return F.relu(x + self.body(x))


class ASPP(nn.Module):
    def __init__(self, inputs, width, rates):
        super().__init__()
        self.convs = nn.ModuleList([unit(inputs, width, 1)] + [unit(inputs, width, 3, r) for r in rates])
        self.image = nn.Sequential(nn.AdaptiveAvgPool2d(1), unit(inputs, width, 1))
        self.project = unit(width * (len(rates) + 2), width, 1)

    def forward(self, x):
        image = self.image(x).expand(-1, -1, *x.shape[2:])
        return self.project(torch.cat([*(conv(x) for conv in self.convs), image], 1))


class DeepLab(nn.Module):
    def __init__(self, bands=4, classes=5):
        super().__init__()
        self.stem = nn.Sequential(down(bands, 10), Residual(10, 1))
        self.deep = nn.Sequential(down(10, 16), Residual(16, 2))
        self.aspp = ASPP(16, 12, (2, 3))
        self.dropout = nn.Dropout(0.1)
        self.skip = unit(10, 4, 1)
        self.classify = nn.Conv2d(16, classes, 3, padding=1)

    def forward(self, x):
        low = self.stem(x)
        high = self.dropout(self.aspp(self.deep(low)))
        high = F.interpolate(high, size=low.shape[2:], mode="bilinear", align_corners=False)
        logits = self.classify(torch.cat([high, self.skip(low)], 1))
        return F.interpolate(logits, size=x.shape[2:], mode="bilinear", align_corners=False)


def loss(logits, y):
    return F.cross_entropy(logits, y.long(), ignore_index=255)
