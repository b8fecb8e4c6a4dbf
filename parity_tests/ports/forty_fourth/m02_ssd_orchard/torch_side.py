"""SSD for orchard pictures."""

import torch
import torch.nn.functional as F
from torch import nn

NUM_CLASSES = 4


class StdConv2d(nn.Conv2d):
    def forward(self, x):
        var, mean = torch.var_mean(self.weight, dim=(1, 2, 3), keepdim=True, correction=0)
        return self._conv_forward(x, (self.weight - mean) * torch.rsqrt(var + 1e-5), self.bias)


class L2Norm(nn.Module):
    def __init__(self, channels, scale=10.0):
        super().__init__()
        self.weight = nn.Parameter(torch.full((channels,), scale))

    def forward(self, x):
        return F.normalize(x, dim=1) * self.weight.view(1, -1, 1, 1)


def block(c_in, c_out, stride=1):
    pad = nn.ZeroPad2d((0, 1, 0, 1) if stride == 2 else 1)
    return nn.Sequential(
        pad,
        StdConv2d(c_in, c_out, 3, stride, bias=False),
        nn.GroupNorm(8, c_out, eps=1e-3),
        nn.ReLU(inplace=True),
    )


class Head(nn.Module):
    """Logits and offsets of the boxes of one level."""

    def __init__(self, channels, boxes):
        super().__init__()
        self.boxes = boxes
        self.box = nn.Conv2d(channels, boxes * 4, 3, padding=1)
        self.cls = nn.Conv2d(channels, boxes * NUM_CLASSES, 3, padding=1)

    def flat(self, x):
        b, _, h, w = x.shape
        return x.view(b, self.boxes, -1, h, w).permute(0, 3, 4, 1, 2).reshape(b, h * w * self.boxes, -1)

    def forward(self, x):
        return torch.cat([self.flat(self.cls(x)), self.flat(self.box(x))], dim=-1)


class SSD(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            block(3, 16, 2),
            block(16, 24),
            nn.ZeroPad2d((0, 1, 0, 1)),
            nn.MaxPool2d(3, 2),
            block(24, 32),
        )
        self.l2 = L2Norm(32)
        self.deeper = nn.Sequential(nn.MaxPool2d(2), block(32, 48))
        self.extra = block(48, 48, 2)
        self.heads = nn.ModuleList([Head(32, 2), Head(48, 3), Head(48, 3)])

    def forward(self, picture):
        if picture.shape[1] != 3:
            picture = picture.permute(0, 3, 1, 2)
        c0 = self.body(picture)
        c1 = self.deeper(c0)
        c2 = self.extra(c1)
        return torch.cat([head(c) for head, c in zip(self.heads, (self.l2(c0), c1, c2))], dim=1)


def build():
    return SSD()


def multibox_loss(outputs, targets):
    label = targets[..., 0].long()
    logits, offsets = outputs.split([NUM_CLASSES, 4], dim=-1)
    positive = label > 0
    n = positive.sum(1)

    entropy = F.cross_entropy(logits.transpose(1, 2), label, reduction="none")
    with torch.no_grad():
        rank = entropy.masked_fill(positive, -1.0).argsort(dim=1, descending=True)
        negative = rank < (3 * n).clamp(min=6)[:, None]

    cls = (entropy * (positive | negative)).sum(1)
    box = (F.smooth_l1_loss(offsets, targets[..., 1:], reduction="none").sum(-1) * positive).sum(1)
    return (cls.sum() + box.sum()) / n.sum().clamp(min=1)
