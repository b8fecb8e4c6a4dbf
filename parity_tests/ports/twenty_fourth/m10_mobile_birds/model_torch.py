"""Bird-call classifier: inverted residuals with squeeze-and-excite."""

import torch
import torch.nn.functional as F
from torch import nn

SPECIES = 5
STAGES = ((2, 8, 1), (3, 12, 2), (2, 12, 1), (3, 16, 2))


class BatchNorm2d(nn.BatchNorm2d):
    """nn.BatchNorm2d that tracks the biased batch variance.

    The stock module tracks the unbiased one; deployed statistics use the other.
    """

    def __init__(self, channels):
        super().__init__(channels, eps=1e-3, momentum=0.9)

    def forward(self, x):
        if not self.training:
            return super().forward(x)
        with torch.no_grad():
            var, mean = torch.var_mean(x, dim=(0, 2, 3), correction=0)
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(var, self.momentum)
            self.num_batches_tracked += 1
        return F.batch_norm(x, None, None, self.weight, self.bias, training=True, eps=self.eps)


class SqueezeExcite(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.down = nn.Conv2d(channels, channels // 4, 1)
        self.up = nn.Conv2d(channels // 4, channels, 1)

    def forward(self, x):
        s = x.mean(dim=(2, 3), keepdim=True)
        s = self.up(F.relu(self.down(s)))
        return x * (F.relu6(s + 3) / 6)


class InvertedResidual(nn.Module):
    def __init__(self, n_in, expansion, n_out, stride):
        super().__init__()
        wide = n_in * expansion
        self.residual = stride == 1 and n_in == n_out
        self.expand = nn.Conv2d(n_in, wide, 1, bias=False)
        self.norm1 = BatchNorm2d(wide)
        self.depthwise = nn.Conv2d(wide, wide, 3, stride=stride, padding=1, groups=wide, bias=False)
        self.norm2 = BatchNorm2d(wide)
        self.se = SqueezeExcite(wide)
        self.project = nn.Conv2d(wide, n_out, 1, bias=False)
        self.norm3 = BatchNorm2d(n_out)

    def forward(self, x):
        y = F.relu6(self.norm1(self.expand(x)))
        y = F.relu6(self.norm2(self.depthwise(y)))
        y = self.norm3(self.project(self.se(y)))
        return x + y if self.residual else y


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(
            nn.ZeroPad2d((0, 1, 0, 1)),
            nn.Conv2d(1, 8, 3, stride=2, bias=False),
            BatchNorm2d(8),
            nn.ReLU6(),
        )
        stages, width = [], 8
        for expansion, filters, stride in STAGES:
            stages.append(InvertedResidual(width, expansion, filters, stride))
            width = filters
        self.stages = nn.Sequential(*stages)
        self.species = nn.Linear(width, SPECIES)

    def forward(self, spectrogram):
        x = self.stages(self.stem(spectrogram))
        return self.species(x.mean(dim=(2, 3)))
