import torch
import torch.nn as nn
import torch.nn.functional as F


class KerasBatchNorm(nn.BatchNorm2d):
    def __init__(self, num_features):
        super().__init__(num_features, eps=1e-3, momentum=0.01)

    def forward(self, x):
        if not self.training:
            return super().forward(x)
        var, mean = torch.var_mean(x, dim=(0, 2, 3), correction=0)
        with torch.no_grad():
            self.running_mean.mul_(0.99).add_(mean, alpha=0.01)
            self.running_var.mul_(0.99).add_(var, alpha=0.01)
        scale = self.weight * torch.rsqrt(var + self.eps)
        return (x - mean[:, None, None]) * scale[:, None, None] + self.bias[:, None, None]


def same_pad(x, k, s, value=0.0):
    h, w = x.shape[-2:]
    ph = max((-(-h // s) - 1) * s + k - h, 0)
    pw = max((-(-w // s) - 1) * s + k - w, 0)
    return F.pad(x, (pw // 2, pw - pw // 2, ph // 2, ph - ph // 2), value=value)


class ConvBN(nn.Module):
    def __init__(self, cin, cout, k, stride=1, act=True):
        super().__init__()
        self.k, self.stride, self.act = k, stride, act
        self.conv = nn.Conv2d(cin, cout, k, stride, bias=False)
        self.bn = KerasBatchNorm(cout)

    def forward(self, x):
        x = self.bn(self.conv(same_pad(x, self.k, self.stride)))
        return F.relu(x) if self.act else x


class SE(nn.Module):
    def __init__(self, channels, ratio=4):
        super().__init__()
        self.reduce = nn.Conv2d(channels, channels // ratio, 1)
        self.expand = nn.Conv2d(channels // ratio, channels, 1)

    def forward(self, x):
        s = F.adaptive_avg_pool2d(x, 1)
        s = torch.sigmoid(self.expand(F.relu(self.reduce(s))))
        return x * s


class Block(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1 = ConvBN(cin, cout, 3, stride)
        self.conv2 = ConvBN(cout, cout, 3, act=False)
        self.se = SE(cout)
        shortcut = []
        if stride > 1:
            shortcut.append(nn.AvgPool2d(stride))
        if cin != cout:
            shortcut.append(ConvBN(cin, cout, 1, act=False))
        self.shortcut = nn.Sequential(*shortcut)

    def forward(self, x):
        return F.relu(self.se(self.conv2(self.conv1(x))) + self.shortcut(x))


class SEResNet(nn.Module):
    def __init__(self, classes, stages):
        super().__init__()
        self.stem = ConvBN(3, 8, 3)
        blocks, c = [], 8
        for cout, stride in stages:
            blocks.append(Block(c, cout, stride))
            c = cout
        self.blocks = nn.ModuleList(blocks)
        self.fc = nn.Linear(c, classes)

    def forward(self, image):
        x = self.stem(image)
        x = F.max_pool2d(same_pad(x, 3, 2, float("-inf")), 3, 2)
        for b in self.blocks:
            x = b(x)
        return self.fc(x.mean(dim=(-2, -1)))


def build(classes=6, stages=((8, 1), (16, 2), (24, 2))):
    return SEResNet(classes, stages)
