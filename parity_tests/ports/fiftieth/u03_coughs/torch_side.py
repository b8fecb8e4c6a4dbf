from functools import partial

import torch
from torch import nn
from torch.nn import functional as F

bn = partial(nn.BatchNorm2d, eps=1e-5, momentum=0.1)


class SubSpectralNorm(nn.Module):
    def __init__(self, channels, bands):
        super().__init__()
        self.bands = bands
        self.bn = bn(channels * bands)

    def forward(self, x):
        b, c, f, t = x.shape
        y = self.bn(x.reshape(b, c * self.bands, f // self.bands, t))
        return y.view(b, c, f, t)


class BCBlock(nn.Module):
    def __init__(self, c_in, c_out, dilation, bands=4):
        super().__init__()
        self.relu = nn.ReLU(inplace=True)
        self.project = nn.Conv2d(c_in, c_out, 1, bias=False) if c_in != c_out else nn.Identity()
        self.f2 = nn.Sequential(
            nn.Conv2d(c_out, c_out, (3, 1), padding=(1, 0), groups=c_out, bias=False),
            SubSpectralNorm(c_out, bands),
        )
        self.f1 = nn.Sequential(
            nn.Conv2d(
                c_out, c_out, (1, 3), padding=(0, dilation), dilation=(1, dilation), groups=c_out, bias=False
            ),
            bn(c_out),
            nn.SiLU(inplace=True),
            nn.Conv2d(c_out, c_out, 1),
        )

    def forward(self, x):
        x = self.project(x)
        wide = self.f2(self.relu(x))
        return x + wide + self.f1(wide.mean(2, keepdim=True))


class CoughNet(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 5, stride=(2, 1), bias=False)
        self.bn = bn(8)
        self.body = nn.Sequential(BCBlock(8, 8, 1), BCBlock(8, 12, 1), BCBlock(12, 12, 2), BCBlock(12, 16, 4))
        self.tail = nn.Conv2d(16, 16, 5, groups=16)
        self.classify = nn.Linear(16, classes)

    def forward(self, frames):
        x = frames.transpose(1, 2).unsqueeze(1)
        x = F.pad(x, (2, 2, 1, 2))
        x = self.body(self.bn(self.conv(x)))
        return self.classify(torch.relu(self.tail(x)).mean((-2, -1)))


def build():
    return CoughNet()
