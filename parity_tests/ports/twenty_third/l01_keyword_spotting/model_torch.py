"""PyTorch port of the DS-CNN keyword spotter; the input is (N, 1, 24, 10)."""

import torch
import torch.nn.functional as F
from torch import nn


def pad_like_tf(x, kernel, stride):
    """Zero padding as TensorFlow's SAME does it: the odd pixel goes to the end."""
    pads = []
    for size, k, s in zip(reversed(x.shape[2:]), reversed(kernel), reversed(stride)):
        total = max((-(-size // s) - 1) * s + k - size, 0)
        pads += [total // 2, total - total // 2]
    return F.pad(x, pads)


class SameConv2d(nn.Conv2d):
    def forward(self, x):
        x = pad_like_tf(x, self.kernel_size, self.stride)
        return F.conv2d(x, self.weight, None, self.stride, 0, 1, self.groups)


class BatchNorm(nn.Module):
    """Batch norm with TF's bookkeeping (population variance in the running average)."""

    def __init__(self, channels, decay=0.9, eps=1e-3):
        super().__init__()
        self.decay, self.eps = decay, eps
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))

    def forward(self, x):
        if self.training:
            mean = x.mean(dim=(0, 2, 3))
            var = x.pow(2).mean(dim=(0, 2, 3)) - mean.pow(2)
            with torch.no_grad():
                self.running_mean.lerp_(mean, 1 - self.decay)
                self.running_var.lerp_(var, 1 - self.decay)
        else:
            mean, var = self.running_mean, self.running_var
        gain = self.weight * torch.rsqrt(var + self.eps)
        shift = self.bias - mean * gain
        return torch.addcmul(shift[:, None, None], x, gain[:, None, None])


class SqueezeExcite(nn.Module):
    def __init__(self, channels, reduced):
        super().__init__()
        self.reduce = nn.Linear(channels, reduced)
        self.expand = nn.Linear(reduced, channels)

    def forward(self, x):
        s = self.expand(self.reduce(x.mean(dim=(2, 3))).clamp(min=0))
        gate = ((s + 3) / 6).clamp(0, 1)
        return torch.einsum("nchw,nc->nchw", x, gate)


class DSBlock(nn.Module):
    def __init__(self, cin, cout, stride, se=0):
        super().__init__()
        self.dw = SameConv2d(cin, cin, 3, stride=stride, groups=cin, bias=False)
        self.dw_bn = BatchNorm(cin)
        self.pw = SameConv2d(cin, cout, 1, bias=False)
        self.pw_bn = BatchNorm(cout)
        self.se = SqueezeExcite(cout, se) if se else nn.Identity()

    def forward(self, x):
        x = F.relu(self.dw_bn(self.dw(x)))
        x = F.relu(self.pw_bn(self.pw(x)))
        return self.se(x)


class DSCNN(nn.Module):
    def __init__(self, n_words=8):
        super().__init__()
        self.stem = SameConv2d(1, 12, (5, 3), stride=2, bias=False)
        self.stem_bn = BatchNorm(12)
        self.block1 = DSBlock(12, 16, 1)
        self.block2 = DSBlock(16, 20, 2, se=5)
        self.classifier = nn.Linear(20, n_words)

    def forward(self, mfcc):
        x = F.relu(self.stem_bn(self.stem(mfcc)))
        x = self.block2(self.block1(x))
        return self.classifier(x.flatten(2).mean(-1))
