"""Eye landmark network, PyTorch. Input (N, 1, 20, 20), output (N, 6): x0 y0 x1 y1 x2 y2."""

import torch
import torch.nn.functional as F
from torch import nn


class ChannelGroupNorm(nn.Module):
    """Group norm computed on the view (N, groups, everything of the group)."""

    def __init__(self, channels, groups=4, eps=1e-3):
        super().__init__()
        self.groups, self.eps = groups, eps
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x):
        n, c, h, w = x.shape
        g = x.reshape(n, self.groups, -1)
        var, mean = torch.var_mean(g, dim=-1, keepdim=True, correction=0)
        g = ((g - mean) * torch.rsqrt(var + self.eps)).view(n, c, h, w)
        return g * self.weight.view(1, c, 1, 1) + self.bias.view(1, c, 1, 1)


class Stage(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 3, padding=1, bias=False)
        self.norm = ChannelGroupNorm(cout)

    def forward(self, x):
        return F.silu(self.norm(self.conv(x)))


class SoftArgmax(nn.Module):
    """Expected position per map from the marginals over columns and rows."""

    def __init__(self, points):
        super().__init__()
        self.sharpness = nn.Parameter(torch.full((points,), 0.5))

    @staticmethod
    def centre(marginal):
        size = marginal.shape[-1]
        index = torch.arange(size, dtype=marginal.dtype, device=marginal.device)
        return (marginal * (2 * index + 1)).sum(-1) / (2 * size)

    def forward(self, maps):
        beta = torch.log1p(self.sharpness.exp())
        maps = maps * beta[:, None, None]
        total = torch.logsumexp(maps, dim=(2, 3), keepdim=True)
        prob = torch.exp(maps - total)
        x = self.centre(prob.sum(dim=2))
        y = self.centre(prob.sum(dim=3))
        return torch.stack([x, y], dim=2).flatten(1)


class EyePoints(nn.Module):
    def __init__(self, n_points=3):
        super().__init__()
        self.stage1 = Stage(1, 12)
        self.stage2 = Stage(12, 16)
        self.stage3 = Stage(16, 8)
        self.heatmaps = nn.Conv2d(24, n_points, 1, bias=False)
        self.soft_argmax = SoftArgmax(n_points)

    def forward(self, eye):
        x = self.stage1(eye)
        # windows of three with stride two; the last one hangs over the border
        x = F.max_pool2d(x, 3, stride=2, ceil_mode=True)
        x = self.stage2(x)
        x = torch.cat([x, self.stage3(x)], dim=1)
        return self.soft_argmax(self.heatmaps(x))
