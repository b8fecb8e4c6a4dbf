"""The U-Net in PyTorch."""

import torch
from torch import nn
from torch.nn import functional as F


class KerasBatchNorm2d(nn.BatchNorm2d):
    """BatchNorm with Keras's epsilon, momentum and biased running variance."""

    def __init__(self, channels):
        super().__init__(channels, eps=1e-3, momentum=0.01)

    def forward(self, x):
        if self.training:
            with torch.no_grad():
                self.running_mean.lerp_(x.mean((0, 2, 3)), self.momentum)
                self.running_var.lerp_(x.var((0, 2, 3), unbiased=False), self.momentum)
            return F.batch_norm(x, None, None, self.weight, self.bias, True, 0.0, self.eps)
        return super().forward(x)


class DoubleConv(nn.Sequential):
    def __init__(self, cin, cout):
        super().__init__(
            nn.Conv2d(cin, cout, 3, padding=1, bias=False),
            KerasBatchNorm2d(cout),
            nn.ReLU(inplace=True),
            nn.Conv2d(cout, cout, 3, padding=1, bias=False),
            KerasBatchNorm2d(cout),
            nn.ReLU(inplace=True),
        )


class UNet(nn.Module):
    def __init__(self, classes=3, width=8):
        super().__init__()
        self.down1 = DoubleConv(1, width)
        self.down2 = DoubleConv(width, width * 2)
        self.bottom = DoubleConv(width * 2, width * 4)
        self.up2 = nn.ConvTranspose2d(width * 4, width * 2, 2, stride=2)
        self.dec2 = DoubleConv(width * 4, width * 2)
        self.up1 = nn.ConvTranspose2d(width * 2, width, 3, stride=2)
        self.dec1 = DoubleConv(width * 2, width)
        self.head = nn.Conv2d(width, classes, 1)
        self.pool = nn.MaxPool2d(2)

    def forward(self, image):
        skip1 = self.down1(image)
        skip2 = self.down2(self.pool(skip1))
        x = self.bottom(self.pool(skip2))
        x = self.dec2(torch.cat([skip2, self.up2(x)], dim=1))
        up = self.up1(x)[..., :-1, :-1]  # 'same' of Keras: nothing cropped at the start, one at the end
        x = self.dec1(torch.cat([skip1, up], dim=1))
        return self.head(x)
