"""VoxelMorph in PyTorch, on grid_sample."""

import torch
from torch import nn
from torch.nn import functional as F


def warp(image, shift):
    height, width = image.shape[-2:]
    y = torch.linspace(-1, 1, height, dtype=image.dtype, device=image.device)
    x = torch.linspace(-1, 1, width, dtype=image.dtype, device=image.device)
    y, x = torch.meshgrid(y, x, indexing="ij")
    dy, dx = shift.unbind(1)
    grid = torch.stack([x + 2 * dx / (width - 1), y + 2 * dy / (height - 1)], dim=-1)
    return F.grid_sample(image, grid, padding_mode="border", align_corners=True)


class Conv(nn.Module):
    def __init__(self, inputs, outputs, stride=1):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, stride, padding=1 if stride == 1 else 0)

    def forward(self, x):
        if self.conv.stride != (1, 1):
            x = F.pad(x, (0, 1, 0, 1))
        return F.leaky_relu(self.conv(x), 0.2)


class Net(nn.Module):
    def __init__(self, steps=3):
        super().__init__()
        self.steps = steps
        self.encoder = nn.ModuleList([Conv(2, 12, 2), Conv(12, 16, 2)])
        self.bottom = Conv(16, 16)
        self.decoder = nn.ModuleList([Conv(16 + 12, 12), Conv(12 + 2, 8)])
        self.velocity = nn.Conv2d(8, 2, 3, padding=1)
        nn.init.normal_(self.velocity.weight, std=0.1)
        nn.init.zeros_(self.velocity.bias)

    def forward(self, moving, fixed):
        skips = [torch.cat([moving, fixed], dim=1)]
        for down in self.encoder:
            skips.append(down(skips[-1]))
        x = self.bottom(skips.pop())
        for up in self.decoder:
            x = F.interpolate(x, scale_factor=2)
            x = up(torch.cat([x, skips.pop()], dim=1))
        flow = self.velocity(x) / 2**self.steps
        for _ in range(self.steps):
            flow = flow + warp(flow, flow)
        return {"flow": flow, "warped": warp(moving, flow)}


def ncc(warped, fixed, window=5):
    means = F.avg_pool2d(torch.cat([fixed, warped, fixed * warped, fixed**2, warped**2], dim=1), window, 1)
    a, b, ab, aa, bb = means.unbind(1)
    cc = (ab - a * b) ** 2 / ((aa - a * a) * (bb - b * b) + 1e-5)
    return 1 - cc.mean()


def bending(flow, stiffness):
    dy = stiffness[:, :, 1:] * flow.diff(dim=2).square()
    dx = stiffness[:, :, :, 1:] * flow.diff(dim=3).square()
    return (dy.mean() + dx.mean()) / 2
