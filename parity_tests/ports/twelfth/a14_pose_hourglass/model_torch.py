"""Stacked hourglasses in PyTorch, channels first."""

import torch
from torch import nn
from torch.nn import functional as F


class BatchNorm(nn.BatchNorm2d):
    """With Keras's momentum and epsilon, and the biased running variance."""

    def __init__(self, channels):
        super().__init__(channels, eps=1e-3, momentum=0.01)

    def forward(self, x):
        if not self.training:
            return super().forward(x)
        with torch.no_grad():
            self.running_mean.lerp_(x.mean((0, 2, 3)), self.momentum)
            self.running_var.lerp_(x.var((0, 2, 3), unbiased=False), self.momentum)
        return F.batch_norm(x, None, None, self.weight, self.bias, True, 0.0, self.eps)


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(
            BatchNorm(width),
            nn.ReLU(),
            nn.Conv2d(width, width // 2, 1),
            BatchNorm(width // 2),
            nn.ReLU(),
            nn.Conv2d(width // 2, width, 3, padding=1),
        )

    def forward(self, x):
        return x + self.body(x)


class Hourglass(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.skip = Residual(width)
        inner = Hourglass(width, depth - 1) if depth > 1 else Residual(width)
        self.low = nn.Sequential(nn.MaxPool2d(2), Residual(width), inner)

    def forward(self, x):
        return self.skip(x) + F.interpolate(self.low(x), scale_factor=2, mode="nearest")


def soft_argmax(heat):
    """(batch, joints, height, width) -> (batch, joints, 2), x before y."""
    height, width = heat.shape[2:]
    p = heat.flatten(2).softmax(-1).view_as(heat)
    x = p.sum(2) @ torch.linspace(0, 1, width, dtype=p.dtype, device=p.device)
    y = p.sum(3) @ torch.linspace(0, 1, height, dtype=p.dtype, device=p.device)
    return torch.stack([x, y], dim=-1)


class Net(nn.Module):
    def __init__(self, width=8, joints=3, stacks=2, depth=2):
        super().__init__()
        self.stem = nn.Conv2d(1, width, 3, stride=2)
        self.hourglasses = nn.ModuleList(Hourglass(width, depth) for _ in range(stacks))
        self.features = nn.ModuleList(nn.Conv2d(width, width, 1) for _ in range(stacks))
        self.heat = nn.ModuleList(nn.Conv2d(width, joints, 1) for _ in range(stacks))
        self.features_back = nn.ModuleList(nn.Conv2d(width, width, 1) for _ in range(stacks - 1))
        self.heat_back = nn.ModuleList(nn.Conv2d(joints, width, 1) for _ in range(stacks - 1))

    def forward(self, picture):
        x = self.stem(F.pad(picture, (0, 1, 0, 1)))
        places = []
        for i, hourglass in enumerate(self.hourglasses):
            y = F.relu(self.features[i](hourglass(x)))
            heat = self.heat[i](y)
            places.append(soft_argmax(heat))
            if i < len(self.features_back):
                x = x + self.features_back[i](y) + self.heat_back[i](heat)
        return torch.stack(places, dim=1)


def loss(places, joints):
    return (places - joints.unsqueeze(1)).square().sum(-1).add(1e-4).sqrt().mean()
