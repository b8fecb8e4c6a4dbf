"""PyTorch version of the land-cover U-Net. Takes the tiles as they are stored (B, H, W, bands)."""

import torch
import torch.nn.functional as F
from torch import nn


class SepConv(nn.Module):
    """TF-style 'same' depthwise-separable convolution + GroupNorm + SiLU."""

    def __init__(self, cin, cout, stride=1):
        super().__init__()
        self.stride = stride
        self.depthwise = nn.Conv2d(
            cin, cin, 3, stride=stride, groups=cin, bias=False, padding=1 if stride == 1 else 0
        )
        self.pointwise = nn.Conv2d(cin, cout, 1, bias=False)
        self.norm = nn.GroupNorm(4, cout, eps=1e-3)

    def forward(self, x):
        if self.stride == 2:  # even sizes: TF pads right and bottom only
            x = F.pad(x, (0, 1, 0, 1))
        return F.silu(self.norm(self.pointwise(self.depthwise(x))))


class UNet(nn.Module):
    def __init__(self, bands=4, classes=3):
        super().__init__()
        self.stem = nn.Conv2d(bands, 8, 3, padding=1)
        self.enc1 = SepConv(8, 8)
        self.down1 = SepConv(8, 16, stride=2)
        self.enc2 = SepConv(16, 16)
        self.bottom = nn.Sequential(SepConv(16, 24, stride=2), SepConv(24, 24), nn.Upsample(scale_factor=2))
        self.dec2 = SepConv(24 + 16, 16)
        self.up1 = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.dec1 = SepConv(16, 8)
        self.head = nn.Conv2d(8, classes, 1)

    def forward(self, x):
        x = x.permute(0, 3, 1, 2)
        s1 = self.enc1(self.stem(x))
        s2 = self.enc2(self.down1(s1))
        x = self.dec2(torch.cat([self.bottom(s2), s2], 1))
        x = self.dec1(torch.cat([self.up1(x), s1], 1))
        return self.head(x).permute(0, 2, 3, 1)


def build():
    return UNet()


def dice_ce(logits, target):
    target = target.long()
    ce = F.cross_entropy(logits.flatten(0, 2), target.flatten())
    p = logits.softmax(-1)
    t = F.one_hot(target, logits.shape[-1]).to(p)
    inter = torch.einsum("bhwc,bhwc->bc", p, t)
    denom = (p + t).sum((1, 2))
    return ce + (1 - (2 * inter + 1) / (denom + 1)).mean()
