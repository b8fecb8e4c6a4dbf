"""Weld seam inspection, PyTorch; input (N, 1, 24, 24), dict of two outputs."""

import torch
import torch.nn.functional as F
from torch import nn


class Down(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 3, stride=2, padding=1)

    def forward(self, x):
        return F.leaky_relu(self.conv(x), 0.1)


class Merge(nn.Module):
    """Top-down step: lateral projection plus the doubled coarse map, smoothed."""

    def __init__(self, cin, width):
        super().__init__()
        self.lateral = nn.Conv2d(cin, width, 1)
        self.smooth = nn.AvgPool2d(3, stride=1, padding=1)

    def forward(self, fine, coarse):
        n, c, h, w = coarse.shape
        doubled = coarse[:, :, :, None, :, None].expand(n, c, h, 2, w, 2)
        return self.smooth(self.lateral(fine) + doubled.reshape(n, c, 2 * h, 2 * w))


class WeldFPN(nn.Module):
    def __init__(self, width=16, n_classes=4):
        super().__init__()
        self.c1 = Down(1, 10)
        self.c2 = Down(10, 14)
        self.c3 = Down(14, 18)
        self.p3_lateral = nn.Conv2d(18, width, 1)
        self.p2 = Merge(14, width)
        self.p1 = Merge(10, width)
        self.density1 = nn.Conv2d(width, 8, 3, padding=1)
        self.density2 = nn.Conv2d(8, 1, 1)
        self.defect_hidden = nn.Linear(3 * width, 20)
        self.defect = nn.Linear(20, n_classes)

    def forward(self, seam):
        c1 = self.c1(seam)
        c2 = self.c2(c1)
        c3 = self.c3(c2)
        p3 = self.p3_lateral(c3)
        p2 = self.p2(c2, p3)
        p1 = self.p1(c1, p2)

        density = self.density2(F.relu(self.density1(p1)))
        pores = torch.logaddexp(density, torch.zeros_like(density)).mean(dim=(2, 3))

        x = torch.cat([p.amax(dim=(2, 3)) for p in (p1, p2, p3)], dim=1)
        x = F.leaky_relu(self.defect_hidden(x), 0.1)
        return {"pores": pores, "defect": self.defect(x)}
