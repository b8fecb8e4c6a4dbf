"""SlowFast, channels first inside; clips come as (batch, frames, height, width, 1)."""

import torch
import torch.nn.functional as F
from torch import nn


def same(x, kernel, stride):
    """Pad the last three axes so that a convolution covers them as TensorFlow's SAME does."""
    pads = []
    for size, k, s in zip(x.shape[:1:-1], kernel[::-1], stride[::-1]):
        total = max((-(-size // s) - 1) * s + k - size, 0)
        pads += [total // 2, total - total // 2]
    return F.pad(x, pads)


class Conv(nn.Conv3d):
    def forward(self, x):
        return super().forward(same(x, self.kernel_size, self.stride))


class Norm(nn.BatchNorm3d):
    """The moving variance is that of the batch, without Bessel's correction."""

    def forward(self, x):
        if not self.training:
            return super().forward(x)
        with torch.no_grad():
            var, mean = torch.var_mean(x, (0, 2, 3, 4), correction=0)
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(var, self.momentum)
        return F.batch_norm(x, None, None, self.weight, self.bias, training=True, eps=self.eps)


class Unit(nn.Sequential):
    def __init__(self, inputs, outputs, kernel, stride=1):
        conv = Conv(inputs, outputs, kernel, (1, stride, stride), bias=False)
        super().__init__(conv, Norm(outputs), nn.ReLU())


class Residual(nn.Module):
    def __init__(self, channels, inner, temporal):
        super().__init__()
        self.a = Unit(channels, inner, (temporal, 1, 1))
        self.b = Conv(inner, channels, (1, 3, 3))

    def forward(self, x):
        return F.relu(x + self.b(self.a(x)))


class SlowFast(nn.Module):
    def __init__(self, classes=3, alpha=4):
        super().__init__()
        self.alpha = alpha
        self.fast_stem = Unit(1, 3, (5, 3, 3), stride=2)
        self.slow_stem = Unit(1, 8, (1, 3, 3), stride=2)
        self.lateral = nn.ModuleList([Conv(3, 6, (5, 1, 1), (alpha, 1, 1)) for _ in range(2)])
        self.fuse = nn.ModuleList([Unit(14, 8, (1, 1, 1)) for _ in range(2)])
        self.slow = nn.ModuleList([Residual(8, 4, 1), Residual(8, 4, 3)])
        self.fast = nn.ModuleList([Residual(3, 3, 3), Residual(3, 3, 3)])
        self.classes = nn.Linear(11, classes)

    def forward(self, clip):
        clip = clip.movedim(-1, 1)
        fast, slow = self.fast_stem(clip), self.slow_stem(clip[:, :, :: self.alpha])
        for lateral, fuse, slow_block, fast_block in zip(self.lateral, self.fuse, self.slow, self.fast):
            slow = slow_block(fuse(torch.cat([slow, lateral(fast)], dim=1)))
            fast = fast_block(fast)
        return self.classes(torch.cat([slow.mean((2, 3, 4)), fast.amax((2, 3, 4))], dim=1))


def focal(output, target, weight):
    logp = F.log_softmax(output, dim=1)
    modulated = (1 - logp.exp()).square() * logp
    own = modulated.gather(1, target.long().view(-1, 1)).squeeze(1)
    value = -(0.9 * own + 0.1 * modulated.mean(1))
    return (weight.view(-1) * value).mean()
