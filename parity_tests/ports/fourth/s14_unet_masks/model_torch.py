import torch
from torch import nn
from torch.nn import functional as F


class KerasBatchNorm2d(nn.BatchNorm2d):
    def __init__(self, channels):
        super().__init__(channels, eps=1e-3, momentum=0.9)

    def forward(self, x):
        if not self.training:
            return super().forward(x)
        with torch.no_grad():
            batch_var, batch_mean = torch.var_mean(x, dim=(0, 2, 3), unbiased=False)
            self.running_mean.mul_(1 - self.momentum).add_(self.momentum * batch_mean)
            self.running_var.mul_(1 - self.momentum).add_(self.momentum * batch_var)
        return F.batch_norm(x, None, None, self.weight, self.bias, training=True, eps=self.eps)


def double(inputs, outputs):
    layers = []
    for channels in (inputs, outputs):
        layers += [
            nn.Conv2d(channels, outputs, 3, padding=1, bias=False),
            KerasBatchNorm2d(outputs),
            nn.ReLU(),
        ]
    return nn.Sequential(*layers)


class Halve(nn.Module):
    def forward(self, x):
        return F.avg_pool2d(F.pad(x, (0, 1, 0, 1)), 3, stride=2)


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.top = double(1, 8)
        self.middle = double(8, 16)
        self.bottom = double(16, 24)
        self.up1 = double(16 + 24, 16)
        self.up2 = double(8 + 16, 8)
        self.halve = Halve()
        self.twice = nn.Upsample(scale_factor=2)
        self.logits = nn.Conv2d(8, 1, 1)

    def forward(self, scan):
        top = self.top(scan)
        middle = self.middle(self.halve(top))
        x = self.twice(self.bottom(self.halve(middle)))
        x = self.twice(self.up1(torch.cat([middle, x], dim=1)))
        return self.logits(self.up2(torch.cat([top, x], dim=1))).squeeze(1)


def overlap(outputs, targets, weights):
    pixel = F.binary_cross_entropy_with_logits(outputs, targets, reduction="none").mean((1, 2))
    p = outputs.sigmoid()
    dice = (2 * (p * targets).sum() + 1) / (p.sum() + targets.sum() + 1)
    return (weights * (pixel + 1 - dice)).mean()
