import torch
import torch.nn as nn
import torch.nn.functional as F


class ChannelNorm(nn.Module):
    """LayerNorm over the channels of an NCHW map."""

    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.bias = nn.Parameter(torch.zeros(dim))
        self.eps = eps

    def forward(self, x):
        mu = x.mean(1, keepdim=True)
        var = (x - mu).pow(2).mean(1, keepdim=True)
        x = (x - mu) / torch.sqrt(var + self.eps)
        return x * self.weight[:, None, None] + self.bias[:, None, None]


class Block(nn.Module):
    def __init__(self, dim, layer_scale=0.1):
        super().__init__()
        self.dwconv = nn.Conv2d(dim, dim, 7, padding=3, groups=dim)
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.pwconv1 = nn.Linear(dim, 4 * dim)
        self.act = nn.GELU()
        self.pwconv2 = nn.Linear(4 * dim, dim)
        self.gamma = nn.Parameter(layer_scale * torch.ones(dim))

    def forward(self, x):
        y = self.dwconv(x).permute(0, 2, 3, 1)
        y = self.pwconv2(self.act(self.pwconv1(self.norm(y))))
        y = (self.gamma * y).permute(0, 3, 1, 2)
        return x + y


class ConvNeXt(nn.Module):
    def __init__(self, depths=(1, 2), dims=(12, 20), num_classes=5):
        super().__init__()
        self.downsample_layers = nn.ModuleList(
            [
                nn.Sequential(nn.Conv2d(3, dims[0], 2, stride=2), ChannelNorm(dims[0])),
                nn.Sequential(ChannelNorm(dims[0]), nn.Conv2d(dims[0], dims[1], 2, stride=2)),
            ]
        )
        self.stages = nn.ModuleList(
            [nn.Sequential(*[Block(d) for _ in range(n)]) for n, d in zip(depths, dims)]
        )
        self.norm = nn.LayerNorm(dims[-1], eps=1e-6)
        self.head = nn.Linear(dims[-1], num_classes)

    def forward(self, x):
        for down, stage in zip(self.downsample_layers, self.stages):
            x = stage(down(x))
        return self.head(self.norm(x.mean([-2, -1])))


def build():
    return ConvNeXt()


def loss(outputs, targets):
    return F.cross_entropy(outputs, targets.long().view(-1), label_smoothing=0.1)
