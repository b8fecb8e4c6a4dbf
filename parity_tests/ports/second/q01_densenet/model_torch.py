from collections import OrderedDict

import torch
from torch import nn
from torch.nn import functional as F


class BatchNorm2d(nn.BatchNorm2d):
    """As Keras: epsilon 1e-3, momentum 0.99, and the batch's own (biased) variance in the running one."""

    def __init__(self, channels):
        super().__init__(channels, eps=1e-3, momentum=0.01)

    def forward(self, x):
        if not self.training:
            return F.batch_norm(
                x, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps
            )
        var, mean = torch.var_mean(x.detach(), dim=(0, 2, 3), correction=0)
        with torch.no_grad():
            self.running_mean += self.momentum * (mean - self.running_mean)
            self.running_var += self.momentum * (var - self.running_var)
        return F.batch_norm(x, None, None, self.weight, self.bias, True, 0.0, self.eps)


class _DenseLayer(nn.Module):
    def __init__(self, channels, growth):
        super().__init__()
        self.norm1 = BatchNorm2d(channels)
        self.conv1 = nn.Conv2d(channels, 4 * growth, 1, bias=False)
        self.norm2 = BatchNorm2d(4 * growth)
        self.conv2 = nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)

    def forward(self, features):
        x = torch.cat(features, 1)
        x = self.conv1(F.relu(self.norm1(x)))
        return self.conv2(F.relu(self.norm2(x)))


class _DenseBlock(nn.ModuleDict):
    def __init__(self, layers, channels, growth):
        super().__init__()
        for i in range(layers):
            self[f"denselayer{i + 1}"] = _DenseLayer(channels + i * growth, growth)

    def forward(self, x):
        features = [x]
        for layer in self.values():
            features.append(layer(features))
        return torch.cat(features, 1)


class _Transition(nn.Sequential):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.norm = BatchNorm2d(inputs)
        self.relu = nn.ReLU(inplace=True)
        self.conv = nn.Conv2d(inputs, outputs, 1, bias=False)
        self.pool = nn.AvgPool2d(2, 2)


class DenseNet(nn.Module):
    def __init__(self, growth=8, depth=(3, 3), classes=10):
        super().__init__()
        self.features = nn.Sequential(OrderedDict(conv0=nn.Conv2d(3, 16, 3, padding=1, bias=False)))
        channels = 16
        for b, n in enumerate(depth, 1):
            self.features.add_module(f"denseblock{b}", _DenseBlock(n, channels, growth))
            channels += n * growth
            if b < len(depth):
                self.features.add_module(f"transition{b}", _Transition(channels, channels // 2))
                channels //= 2
        self.features.add_module("norm5", BatchNorm2d(channels))
        self.classifier = nn.Linear(channels, classes)

    def forward(self, x):
        x = F.relu(self.features(x))
        x = F.adaptive_avg_pool2d(x, 1).flatten(1)
        return self.classifier(x)
