"""PyTorch port: grid_sample takes the samples of all taps in one call."""

import torch
from torch import nn
from torch.nn import functional as F


class ModulatedDeform(nn.Module):
    def __init__(self, inputs, outputs, size=3):
        super().__init__()
        self.size = size
        self.p_conv = nn.Conv2d(inputs, 2 * size**2, 3, padding=1)
        self.m_conv = nn.Conv2d(inputs, size**2, 3, padding=1)
        self.conv = nn.Linear(size**2 * inputs, outputs)
        nn.init.normal_(self.p_conv.weight, std=0.05)
        nn.init.constant_(self.p_conv.bias, 0.3)

    def grid(self, x):
        height, width = x.shape[-2:]
        offset = self.p_conv(x).unflatten(1, (-1, 2))  # batch, taps, (down, right), height, width
        reach = torch.arange(self.size, dtype=x.dtype, device=x.device) - self.size // 2
        ys, xs = (torch.arange(n, dtype=x.dtype, device=x.device) for n in (height, width))
        down = reach.repeat_interleave(self.size).view(-1, 1, 1) + ys.view(-1, 1)
        right = reach.repeat(self.size).view(-1, 1, 1) + xs
        down, right = down + offset[:, :, 0], right + offset[:, :, 1]
        return torch.stack([right * 2 / (width - 1) - 1, down * 2 / (height - 1) - 1], dim=-1)

    def forward(self, x):
        grid = self.grid(x)
        sampled = F.grid_sample(x, grid.flatten(1, 2), mode="bilinear", align_corners=True)
        sampled = sampled.unflatten(2, grid.shape[1:3]) * self.m_conv(x).sigmoid().unsqueeze(1)
        return self.conv(sampled.permute(0, 3, 4, 2, 1).flatten(3)).permute(0, 3, 1, 2)


class Net(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        self.stem = nn.Conv2d(2, 8, 3, padding=1)
        self.deform = ModulatedDeform(8, 14)
        self.top = nn.Conv2d(14, 16, 3)
        self.fc = nn.Linear(9 * 16, classes)

    def forward(self, picture):
        x = self.stem(picture.permute(0, 3, 1, 2)).relu()
        x = F.avg_pool2d(self.deform(x).relu(), 2)
        x = self.top(x).relu()
        return self.fc(x.permute(0, 2, 3, 1).flatten(1))
