import torch
import torch.nn as nn
import torch.nn.functional as F


class DoubleConv(nn.Module):
    def __init__(self, in_ch, out_ch):
        super().__init__()
        self.conv1 = nn.Conv2d(in_ch, out_ch, 3)
        self.conv2 = nn.Conv2d(out_ch, out_ch, 3)

    def forward(self, x):
        return F.relu(self.conv2(F.relu(self.conv1(x))))


class Up(nn.Module):
    def __init__(self, in_ch, out_ch):
        super().__init__()
        self.upsample = nn.Upsample(scale_factor=2, mode="nearest")
        self.conv = nn.Conv2d(in_ch, out_ch, 2)

    def forward(self, x, skip):
        x = self.conv(F.pad(self.upsample(x), (1, 0, 1, 0)))
        dy = (skip.size(2) - x.size(2)) // 2
        dx = (skip.size(3) - x.size(3)) // 2
        skip = skip[:, :, dy : dy + x.size(2), dx : dx + x.size(3)]
        return torch.cat([skip, x], dim=1)


class UNet(nn.Module):
    def __init__(self, n_channels=1, n_classes=1, base=6):
        super().__init__()
        self.down1 = DoubleConv(n_channels, base)
        self.bottom = DoubleConv(base, 2 * base)
        self.up1 = Up(2 * base, base)
        self.merge = nn.Conv2d(2 * base, base, 3)
        self.outc = nn.Conv2d(base, n_classes, 1)

    def forward(self, image):
        d1 = self.down1(image)
        x = self.bottom(F.max_pool2d(d1, 2))
        x = self.up1(x, d1)
        x = F.relu(self.merge(x))
        return self.outc(x)


def build():
    return UNet()


def dice_loss(logits, target, smooth=1.0):
    pred, target = logits.sigmoid().flatten(), target.flatten()
    inter = (pred * target).sum()
    union = pred.sum() + target.sum()
    return 1.0 - (2.0 * inter + smooth) / (union + smooth)


def bce_dice(logits, target):
    return F.binary_cross_entropy_with_logits(logits, target) + dice_loss(logits, target)
