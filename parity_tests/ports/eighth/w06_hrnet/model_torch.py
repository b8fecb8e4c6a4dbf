import torch
from torch import nn
from torch.nn import functional as F


class BatchNorm(nn.BatchNorm2d):
    """Keeps the biased variance, as Keras does."""

    def forward(self, x):
        if not self.training:
            return super().forward(x)
        with torch.no_grad():
            var, mean = torch.var_mean(x, dim=(0, 2, 3), unbiased=False)
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(var, self.momentum)
        return F.batch_norm(x, None, None, self.weight, self.bias, training=True, eps=self.eps)


def conv_bn(c_in, c_out, k=3, stride=1, relu=True):
    pad = nn.ZeroPad2d((0, 1, 0, 1) if stride == 2 else k // 2)
    parts = [pad, nn.Conv2d(c_in, c_out, k, stride, bias=False), BatchNorm(c_out)]
    return nn.Sequential(*parts, nn.ReLU()) if relu else nn.Sequential(*parts)


class BasicBlock(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.body = nn.Sequential(conv_bn(c, c), conv_bn(c, c, relu=False))

    def forward(self, x):
        return F.relu(x + self.body(x))


class Exchange(nn.Module):
    """A block on each branch, then each branch is given the other one."""

    def __init__(self, channels):
        super().__init__()
        fine, coarse = channels
        self.blocks = nn.ModuleList(BasicBlock(c) for c in channels)
        self.to_fine = conv_bn(coarse, fine, k=1, relu=False)
        self.to_coarse = conv_bn(fine, coarse, stride=2, relu=False)

    def forward(self, branches):
        fine, coarse = (block(x) for block, x in zip(self.blocks, branches))
        up = F.interpolate(self.to_fine(coarse), scale_factor=2, mode="nearest")
        return F.relu(fine + up), F.relu(coarse + self.to_coarse(fine))


class Net(nn.Module):
    def __init__(self, keypoints=3, channels=(10, 16)):
        super().__init__()
        self.stem = conv_bn(1, channels[0])
        self.branches = nn.ModuleList(
            [conv_bn(channels[0], channels[0]), conv_bn(channels[0], channels[1], stride=2)]
        )
        self.stages = nn.Sequential(Exchange(channels), Exchange(channels))
        self.fuse = conv_bn(sum(channels), 20, k=1)
        self.to_maps = nn.Conv2d(20, keypoints, 1)
        self.to_visible = nn.Linear(channels[1], keypoints)

    def forward(self, picture):
        x = self.stem(picture)
        fine, coarse = self.stages([branch(x) for branch in self.branches])
        both = torch.cat([fine, F.interpolate(coarse, scale_factor=2)], dim=1)
        return {"heatmaps": self.to_maps(self.fuse(both)), "visible": self.to_visible(coarse.amax((2, 3)))}
