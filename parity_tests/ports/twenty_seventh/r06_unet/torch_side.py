import torch
from torch import nn
from torch.nn import functional as F


class SamePad(nn.Module):
    def forward(self, x):
        return F.pad(x, (0, 1, 0, 1))


def unit(ci, co, stride=1):
    pre = [SamePad()] if stride == 2 else []
    return nn.Sequential(
        *pre,
        nn.Conv2d(ci, co, 3, stride=stride, padding=1 if stride == 1 else 0, bias=False),
        nn.GroupNorm(4, co, eps=1e-3),
        nn.ReLU(),
    )


class SE(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.fc = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(c, c // 2),
            nn.ReLU(),
            nn.Linear(c // 2, c),
            nn.Hardsigmoid(),
        )

    def forward(self, x):
        return x * self.fc(x)[..., None, None]


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc1 = nn.Sequential(unit(1, 8), SE(8))
        self.enc2 = nn.Sequential(unit(8, 12, 2), SE(12))
        self.mid = unit(12, 16, 2)
        self.up2 = nn.ConvTranspose2d(16, 12, 3, stride=2)
        self.dec2 = unit(24, 12)
        self.dec1 = unit(20, 8)
        self.mask = nn.Conv2d(8, 1, 1)

    def forward(self, x):
        x = x.permute(0, 3, 1, 2)
        e1 = self.enc1(x)
        e2 = self.enc2(e1)
        u = self.up2(self.mid(e2))[:, :, :-1, :-1]
        u = self.dec2(torch.cat((u, e2), 1))
        u = F.interpolate(u, scale_factor=2, mode="bilinear", align_corners=False)
        u = self.dec1(torch.cat((u, e1), 1))
        return self.mask(u).permute(0, 2, 3, 1)


def build():
    return UNet()


def dice_focal(prediction, target, gamma=2.0, alpha=0.25):
    p = prediction.sigmoid()
    pf, tf = p.flatten(1), target.flatten(1)
    dice = 1 - (2 * (pf * tf).sum(1) + 1) / (pf.sum(1) + tf.sum(1) + 1)
    bce = F.binary_cross_entropy_with_logits(prediction, target, reduction="none")
    pt = torch.where(target > 0.5, p, 1 - p)
    at = torch.where(target > 0.5, alpha, 1 - alpha)
    focal = (at * (1 - pt).pow(gamma) * bce).mean()
    return dice.mean() + 5 * focal
