import math

import torch
import torch.nn.functional as F
from torch import nn


class BatchNorm(nn.BatchNorm2d):
    """Moves the running variance by the biased variance of the batch, as Keras does."""

    def __init__(self, width):
        super().__init__(width, eps=1e-3, momentum=0.01)

    def forward(self, x):
        if not self.training:
            return super().forward(x)
        with torch.no_grad():
            var, mean = torch.var_mean(x, dim=(0, 2, 3), correction=0)
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(var, self.momentum)
            self.num_batches_tracked.add_(1)
        return F.batch_norm(x, None, None, self.weight, self.bias, training=True, eps=self.eps)


class SamePad(nn.Module):
    def forward(self, x):
        return F.pad(x, (0, 1, 0, 1))


def conv_bn(cin, cout, k, stride=1, groups=1):
    steps = [SamePad()] if stride == 2 else []
    return nn.Sequential(
        *steps,
        nn.Conv2d(cin, cout, k, stride, 0 if stride == 2 else k // 2, groups=groups, bias=False),
        BatchNorm(cout),
        nn.ReLU6(),
    )


def separable(cin, cout, stride=1):
    return nn.Sequential(conv_bn(cin, cin, 3, stride, groups=cin), conv_bn(cin, cout, 1))


class SE(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(width, width // 4), nn.Linear(width // 4, width)

    def forward(self, x):
        s = F.hardsigmoid(self.fc2(F.relu(self.fc1(x.mean((2, 3))))))
        return x * s[:, :, None, None]


class Landmarks(nn.Module):
    def __init__(self, points=5):
        super().__init__()
        self.stem = conv_bn(3, 8, 3, 2)
        self.down = separable(8, 12, 2)
        self.se = SE(12)
        self.deep = separable(12, 12)
        self.merge = separable(20, 16)
        self.maps = nn.Conv2d(16, points, 1, bias=False)

    def forward(self, face):
        skip = self.stem(face.permute(0, 3, 1, 2))
        x = self.deep(self.se(self.down(skip)))
        x = F.interpolate(x, scale_factor=2)
        m = self.maps(self.merge(torch.cat([skip, x], 1)))
        h, w = m.shape[2:]
        p = m.flatten(2).softmax(-1)
        ys, xs = torch.meshgrid(
            torch.linspace(-1, 1, h, dtype=m.dtype, device=m.device),
            torch.linspace(-1, 1, w, dtype=m.dtype, device=m.device),
            indexing="ij",
        )
        return p @ torch.stack([xs.flatten(), ys.flatten()], -1)


def build():
    return Landmarks()


def wing(predicted, points, w=0.3, e=0.1):
    d = (predicted - points).abs()
    c = w - w * math.log(1 + w / e)
    return torch.where(d < w, w * torch.log1p(d / e), d - c).mean()
