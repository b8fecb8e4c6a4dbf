import torch
import torch.nn.functional as F
from torch import nn


class ConvUnit(nn.Sequential):
    def __init__(self, cin, cout):
        super().__init__(
            nn.Conv3d(cin, cout, kernel_size=3, padding=1),
            nn.InstanceNorm3d(cout, affine=True),
            nn.PReLU(cout, init=0.0),
        )


class VBlock(nn.Module):
    def __init__(self, cin, cout, convs):
        super().__init__()
        self.units = nn.ModuleList([ConvUnit(cin if i == 0 else cout, cout) for i in range(convs)])
        self.residual = cin == cout

    def forward(self, x):
        y = x
        for unit in self.units:
            y = unit(y)
        return y + x if self.residual else y


class VNet(nn.Module):
    def __init__(self, base=4, classes=3):
        super().__init__()
        w = [base, 2 * base, 3 * base]
        self.enc1 = VBlock(1, w[0], 1)
        self.down1 = nn.Conv3d(w[0], w[1], 2, 2)
        self.enc2 = VBlock(w[1], w[1], 2)
        self.down2 = nn.Conv3d(w[1], w[2], 2, 2)
        self.enc3 = VBlock(w[2], w[2], 1)
        self.up2 = nn.ConvTranspose3d(w[2], w[1], 2, 2)
        self.dec2 = VBlock(2 * w[1], w[1], 1)
        self.up1 = nn.ConvTranspose3d(w[1], w[0], 2, 2)
        self.dec1 = VBlock(2 * w[0], w[0], 1)
        self.head = nn.Conv3d(w[0], classes, 1)

    def forward(self, scan):
        s1 = self.enc1(scan)
        s2 = self.enc2(F.elu(self.down1(s1)))
        x = self.enc3(F.elu(self.down2(s2)))
        x = self.dec2(torch.cat([self.up2(x), s2], dim=1))
        x = self.dec1(torch.cat([self.up1(x), s1], dim=1))
        return self.head(x)


def build():
    return VNet()
