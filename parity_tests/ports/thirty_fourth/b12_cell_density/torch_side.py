import torch
import torch.nn.functional as F
from torch import nn


class Conv2dSame(nn.Conv2d):
    """Pads as TensorFlow does: the odd pixel goes to the bottom and the right."""

    def forward(self, x):
        pad = []
        for size, k, s in zip(x.shape[:-3:-1], self.kernel_size[::-1], self.stride[::-1]):
            total = max((-(-size // s) - 1) * s + k - size, 0)
            pad += [total // 2, total - total // 2]
        return super().forward(F.pad(x, pad))


def group_norm(channels):
    return nn.GroupNorm(4, channels, eps=1e-3)


class SqueezeExcite(nn.Module):
    def __init__(self, channels, ratio=4):
        super().__init__()
        self.fc1 = nn.Conv2d(channels, channels // ratio, 1)
        self.fc2 = nn.Conv2d(channels // ratio, channels, 1)

    def forward(self, x):
        s = x.mean((2, 3), keepdim=True)
        return x * torch.sigmoid(self.fc2(F.relu(self.fc1(s))))


class MBConv(nn.Module):
    def __init__(self, cin, cout, stride=1, kernel=3, expand=3):
        super().__init__()
        mid = expand * cin
        self.residual = stride == 1 and cin == cout
        self.layers = nn.Sequential(
            nn.Conv2d(cin, mid, 1, bias=False),
            group_norm(mid),
            nn.SiLU(),
            Conv2dSame(mid, mid, kernel, stride, groups=mid, bias=False),
            group_norm(mid),
            nn.SiLU(),
            SqueezeExcite(mid),
            nn.Conv2d(mid, cout, 1, bias=False),
            group_norm(cout),
        )

    def forward(self, x):
        y = self.layers(x)
        return x + y if self.residual else y


class DensityNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), group_norm(8), nn.SiLU())
        self.encoder = nn.Sequential(MBConv(8, 16, 2), MBConv(16, 16, kernel=5), MBConv(16, 24, 2, kernel=5))
        self.decoder = nn.Sequential(
            nn.Conv2d(32, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 1), nn.Softplus()
        )

    def forward(self, image):
        skip = self.stem(image.permute(0, 3, 1, 2))  # images come channels last
        deep = F.interpolate(self.encoder(skip), scale_factor=4, mode="nearest")
        return self.decoder(torch.cat([deep, skip], dim=1)).squeeze(1)


def density_loss(density, target):
    count_error = (density.flatten(1).sum(1) - target.flatten(1).sum(1)).abs().mean()
    return 100 * F.mse_loss(density, target) + 0.02 * count_error


def build():
    return DensityNet()
