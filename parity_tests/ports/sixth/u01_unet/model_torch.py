import torch
import torch.nn.functional as F
from torch import nn


class KerasBatchNorm(nn.BatchNorm2d):
    """Batch norm that keeps the population variance, as the original does."""

    def __init__(self, channels):
        super().__init__(channels, eps=1e-3, momentum=0.01)

    def forward(self, x):
        if self.training:
            with torch.no_grad():
                var, mean = torch.var_mean(x, (0, 2, 3), correction=0)
                self.running_mean += self.momentum * (mean - self.running_mean)
                self.running_var += self.momentum * (var - self.running_var)
            return F.batch_norm(x, None, None, self.weight, self.bias, True, 0.0, self.eps)
        return super().forward(x)


def separable(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cin, 3, padding=1, groups=cin, bias=False),
        nn.Conv2d(cin, cout, 1, bias=False),
        KerasBatchNorm(cout),
        nn.SiLU(),
    )


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.enc1 = separable(8, 12)
        self.enc2 = separable(12, 16)
        self.down = nn.Conv2d(16, 24, 3, stride=2)
        self.drop = nn.Dropout2d(0.1)
        self.atrous = nn.Conv2d(24, 24, 3, padding=2, dilation=2)
        self.up1 = nn.ConvTranspose2d(24, 16, 3, stride=2)
        self.dec1 = separable(32, 16)
        self.dec2 = separable(28, 12)
        self.mask = nn.Conv2d(12, 1, 1)

    def forward(self, image):
        e1 = self.enc1(self.stem(image))
        e2 = self.enc2(F.max_pool2d(e1, 2))
        x = F.silu(self.down(F.pad(e2, (0, 1, 0, 1))))
        x = F.silu(self.atrous(self.drop(x)))
        x = self.up1(x)[..., :-1, :-1]
        x = self.dec1(torch.cat([x, e2], 1))
        x = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
        return self.mask(self.dec2(torch.cat([x, e1], 1)))


def bce_dice(output, target):
    bce = F.binary_cross_entropy_with_logits(output, target, reduction="none").flatten(1).mean(1)
    p = output.sigmoid().flatten(1)
    target = target.flatten(1)
    dice = (2 * (p * target).sum(1) + 1) / (p.sum(1) + target.sum(1) + 1)
    return (bce + 1 - dice).mean()
