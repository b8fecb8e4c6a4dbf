"""The stereo network in PyTorch, channels first."""

import torch
from torch import nn
from torch.nn import functional as F


class BatchNorm2d(nn.BatchNorm2d):
    """Keeps the biased variance, as Keras does."""

    def __init__(self, channels):
        super().__init__(channels, eps=1e-3, momentum=0.1)

    def forward(self, x):
        if not self.training:
            return super().forward(x)
        with torch.no_grad():
            self.running_mean.lerp_(x.mean((0, 2, 3)), self.momentum)
            self.running_var.lerp_(x.var((0, 2, 3), unbiased=False), self.momentum)
        return F.batch_norm(x, None, None, self.weight, self.bias, True, 0.0, self.eps)


class Net(nn.Module):
    def __init__(self, shifts=5):
        super().__init__()
        self.shifts = shifts
        self.features = nn.Sequential(
            nn.Conv2d(1, 6, 3, padding=1, bias=False),
            BatchNorm2d(6),
            nn.ReLU(),
            nn.Conv2d(6, 4, 3, padding=1),
        )
        self.aggregate = nn.Sequential(
            nn.Conv3d(8, 6, 3, padding=1), nn.ReLU(), nn.Conv3d(6, 1, 3, padding=1)
        )

    def volume(self, left, right):
        planes = []
        for d in range(self.shifts):
            planes.append(torch.cat([left, torch.roll(right, d, dims=3)], dim=1))
        return torch.stack(planes, dim=2)

    def forward(self, left, right):
        left = self.features(left)
        right = self.features(right)
        cost = self.aggregate(self.volume(left, right)).squeeze(1)
        shift = torch.arange(self.shifts, dtype=cost.dtype, device=cost.device)
        return torch.einsum("bdhw,d->bhw", F.softmin(cost, dim=1), shift)


def loss(disparity, truth):
    valid = (truth > 0).to(disparity.dtype)
    value = F.smooth_l1_loss(disparity, truth, reduction="none")
    return (value * valid).mean()
