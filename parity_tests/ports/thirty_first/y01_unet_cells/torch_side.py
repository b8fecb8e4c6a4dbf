import torch
import torch.nn.functional as F
from torch import nn


class DoubleConv(nn.Sequential):
    def __init__(self, cin, cout):
        super().__init__(
            nn.Conv2d(cin, cout, 3, padding=1, bias=False),
            nn.BatchNorm2d(cout, eps=1e-3, momentum=0.01),
            nn.ReLU(inplace=True),
            nn.Conv2d(cout, cout, 3, padding=1, bias=False),
            nn.BatchNorm2d(cout, eps=1e-3, momentum=0.01),
            nn.ReLU(inplace=True),
        )


class Up(nn.Module):
    def __init__(self, cin, skip, cout):
        super().__init__()
        self.up = nn.ConvTranspose2d(cin, cout, 3, stride=2, padding=1, output_padding=1)
        self.conv = DoubleConv(cout + skip, cout)

    def forward(self, x, skip):
        x = self.up(x)
        return self.conv(torch.cat([x, skip], dim=1))


class UNet(nn.Module):
    def __init__(self, widths=(8, 12, 20)):
        super().__init__()
        a, b, c = widths
        self.inc = DoubleConv(1, a)
        self.down = DoubleConv(a, b)
        self.bottom = DoubleConv(b, c)
        self.up_a = Up(c, b, b)
        self.up_b = Up(b, a, a)
        self.outc = nn.Conv2d(a, 1, kernel_size=1)

    def forward(self, x):
        s1 = self.inc(x)
        s2 = self.down(F.max_pool2d(s1, 2))
        x = self.bottom(F.max_pool2d(s2, 2))
        x = self.up_a(x, s2)
        x = self.up_b(x, s1)
        return self.outc(x).squeeze(1)


def build():
    return UNet()


def dice_loss(prob, target, smooth=1.0):
    inter = (prob * target).sum()
    return 1 - (2 * inter + smooth) / (prob.sum() + target.sum() + smooth)


def loss(outputs, targets):
    targets = targets.to(outputs.dtype)
    bce = F.binary_cross_entropy_with_logits(outputs, targets)
    return bce + dice_loss(torch.sigmoid(outputs), targets)
