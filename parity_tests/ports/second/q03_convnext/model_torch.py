import itertools

import torch
import torch.nn as nn
import torch.nn.functional as F


class LayerNorm(nn.Module):
    """LayerNorm for channels_last (default) or channels_first data, as in the authors' code."""

    def __init__(self, dim, eps=1e-6, data_format="channels_last"):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.bias = nn.Parameter(torch.zeros(dim))
        self.eps, self.data_format, self.shape = eps, data_format, (dim,)

    def forward(self, x):
        if self.data_format == "channels_last":
            return F.layer_norm(x, self.shape, self.weight, self.bias, self.eps)
        u = x.mean(1, keepdim=True)
        s = (x - u).pow(2).mean(1, keepdim=True)
        x = (x - u) / torch.sqrt(s + self.eps)
        return self.weight[:, None, None] * x + self.bias[:, None, None]


class Block(nn.Module):
    def __init__(self, dim, layer_scale=0.1):
        super().__init__()
        self.gamma = nn.Parameter(layer_scale * torch.ones(dim))
        self.dwconv = nn.Conv2d(dim, dim, kernel_size=7, padding=3, groups=dim)
        self.norm = LayerNorm(dim)
        self.pwconv1 = nn.Linear(dim, 4 * dim)
        self.act = nn.GELU()
        self.pwconv2 = nn.Linear(4 * dim, dim)

    def forward(self, x):
        y = self.dwconv(x).permute(0, 2, 3, 1)
        y = self.pwconv2(self.act(self.pwconv1(self.norm(y))))
        return x + (self.gamma * y).permute(0, 3, 1, 2)


class ConvNeXt(nn.Module):
    def __init__(self, dims=(16, 32), depths=(2, 2), classes=10):
        super().__init__()
        stem = nn.Sequential(nn.Conv2d(3, dims[0], 4, 4), LayerNorm(dims[0], data_format="channels_first"))
        self.downsample_layers = nn.ModuleList([stem])
        for a, b in itertools.pairwise(dims):
            self.downsample_layers.append(
                nn.Sequential(LayerNorm(a, data_format="channels_first"), nn.Conv2d(a, b, 2, 2))
            )
        self.stages = nn.ModuleList(
            nn.Sequential(*[Block(d) for _ in range(n)]) for d, n in zip(dims, depths, strict=False)
        )
        self.norm = nn.LayerNorm(dims[-1], eps=1e-6)
        self.head = nn.Linear(dims[-1], classes)

    def forward(self, x):
        for down, stage in zip(self.downsample_layers, self.stages, strict=False):
            x = stage(down(x))
        return self.head(self.norm(x.mean([-2, -1])))
