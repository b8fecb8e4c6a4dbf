import torch
from torch import nn


class ChannelNorm(nn.LayerNorm):
    def __init__(self, c):
        super().__init__(c, eps=1e-6)

    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ResponseNorm(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(c))
        self.beta = nn.Parameter(torch.zeros(c))

    def forward(self, x):
        energy = (x.square().sum(dim=(2, 3), keepdim=True) + 1e-12).sqrt()
        ratio = energy / (energy.mean(dim=-1, keepdim=True) + 1e-6)
        return self.gamma[:, None, None] * (x * ratio) + self.beta[:, None, None] + x


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(c, c, 5, padding=2, groups=c),
            ChannelNorm(c),
            nn.Conv2d(c, 4 * c, 1),
            nn.GELU(),
            ResponseNorm(4 * c),
            nn.Conv2d(4 * c, c, 1),
        )

    def forward(self, x):
        return x + self.body(x)


class ConvNeXt(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv2d(3, 8, 2, stride=2),
            ChannelNorm(8),
            Block(8),
            Block(8),
            ChannelNorm(8),
            nn.Conv2d(8, 12, 2, stride=2),
            Block(12),
        )
        self.norm = nn.LayerNorm(12, eps=1e-6)
        self.head = nn.Linear(12, classes)

    def forward(self, x):
        x = self.trunk(x.permute(0, 3, 1, 2))
        return self.head(self.norm(x.mean(dim=(2, 3))))


def build():
    return ConvNeXt()
