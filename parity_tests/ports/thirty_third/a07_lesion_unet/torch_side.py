import torch
import torch.nn.functional as F
from torch import nn


class ConvBlock(nn.Module):
    def __init__(self, cin, cout, stride=1, groups=1):
        super().__init__()
        self.stride = stride
        self.conv = nn.Conv2d(cin, cout, 3, stride=stride, groups=groups, padding=0 if stride == 2 else 1)
        self.norm = nn.InstanceNorm2d(cout, affine=True)

    def forward(self, x):
        if self.stride == 2:
            x = F.pad(x, (0, 1, 0, 1))
        return F.silu(self.norm(self.conv(x)))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.fine = ConvBlock(2, 8)
        self.coarse = nn.Sequential(ConvBlock(8, 16, stride=2), ConvBlock(16, 16, groups=4))
        self.up = nn.ConvTranspose2d(16, 8, 3, stride=2, padding=1, output_padding=1)
        self.merge = ConvBlock(16, 8)
        self.out = nn.Conv2d(8, 1, 1)

    def forward(self, scan):
        fine = self.fine(scan)
        x = self.up(self.coarse(fine))
        x = self.merge(torch.cat([fine, x], dim=1))
        return self.out(x).squeeze(1)


def bce_dice(logits, target):
    bce = F.binary_cross_entropy_with_logits(logits, target)
    p = logits.sigmoid()
    overlap = (p * target).sum()
    dice = (2 * overlap + 1) / (p.sum() + target.sum() + 1)
    return bce + 1 - dice


def build():
    return UNet()
