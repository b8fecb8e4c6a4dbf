import torch
import torch.nn.functional as F
from torch import nn


def double_conv(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(outputs, outputs, 3, padding=1),
        nn.ReLU(),
    )


class HED(nn.Module):
    def __init__(self, widths=(8, 12, 16)):
        super().__init__()
        self.stages = nn.ModuleList(double_conv(i, o) for i, o in zip((3, *widths), widths))
        self.scores = nn.ModuleList(nn.Conv2d(width, 1, 1) for width in widths)
        self.fuse = nn.Conv2d(len(widths), 1, 1, bias=False)
        nn.init.constant_(self.fuse.weight, 1 / len(widths))

    def forward(self, image):
        x, sides = image, []
        for depth, (stage, score) in enumerate(zip(self.stages, self.scores)):
            x = stage(F.max_pool2d(x, 2) if depth else x)
            side = score(x)
            for _ in range(depth):
                side = F.interpolate(side, scale_factor=2, mode="bilinear", align_corners=False)
            sides.append(side)
        sides = torch.cat(sides, dim=1)
        return torch.cat([sides, self.fuse(sides)], dim=1)


def balanced(output, target):
    """Class-balanced cross-entropy over the side outputs and the fused one."""
    target = target.expand_as(output)
    share = target.mean()
    weight = torch.where(target > 0, 1 - share, 0.1 + share)
    return F.binary_cross_entropy_with_logits(output, target, weight, reduction="none").sum(1).mean()
