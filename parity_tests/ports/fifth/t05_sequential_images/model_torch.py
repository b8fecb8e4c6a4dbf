from collections import OrderedDict

import torch
from torch import nn


class Affine(nn.Module):
    def __init__(self, scale, offset):
        super().__init__()
        self.scale, self.offset = scale, offset

    def forward(self, x):
        return x * self.scale + self.offset


class ShiftNorm2d(nn.Module):
    """Batch norm without a gain, population variance in the running statistics."""

    def __init__(self, channels, decay=0.9, eps=1e-3):
        super().__init__()
        self.decay, self.eps = decay, eps
        self.bias = nn.Parameter(torch.zeros(1, channels, 1, 1))
        self.register_buffer("running_mean", torch.zeros(1, channels, 1, 1))
        self.register_buffer("running_var", torch.ones(1, channels, 1, 1))

    def forward(self, x):
        mean, var = self.running_mean, self.running_var
        if self.training:
            var, mean = torch.var_mean(x, dim=(0, 2, 3), correction=0, keepdim=True)
            self.running_mean.lerp_(mean.detach(), 1 - self.decay)
            self.running_var.lerp_(var.detach(), 1 - self.decay)
        return (x - mean) / torch.sqrt(var + self.eps) + self.bias


class ToColumns(nn.Module):
    """(batch, channels, height, width) to columns first, channels last, in one vector."""

    def forward(self, x):
        return x.permute(0, 3, 2, 1).flatten(1)


def Net():
    return nn.Sequential(
        OrderedDict(
            rescale=Affine(1 / 64, -2.0),
            pad=nn.ZeroPad2d((2, 1, 1, 2)),
            conv1=nn.Conv2d(3, 12, 4, stride=2),
            gn1=nn.GroupNorm(3, 12, eps=1e-3),
            act1=nn.PReLU(12),
            pool=nn.AvgPool2d(3, stride=2, padding=(1, 0), ceil_mode=True, count_include_pad=False),
            conv2=nn.Conv2d(12, 24, 3, padding=1, groups=12, bias=False),
            conv3=nn.Conv2d(24, 24, 1, groups=4),
            bn3=ShiftNorm2d(24),
            act3=nn.ReLU6(),
            drop3=nn.Dropout2d(0.15),
            conv4=nn.Conv2d(24, 16, 3, stride=2, padding=1),
            act4=nn.Softplus(),
            flat=ToColumns(),
            fc1=nn.Linear(16 * 3 * 3, 32),
            act5=nn.Hardswish(),
            drop5=nn.Dropout(0.25),
            fc2=nn.Linear(32, 5),
        )
    )
