"""FCOS-style detector; the heads are shared between two pyramid levels."""

import torch
import torch.nn.functional as F
from torch import nn

CLASSES, FPN = 3, 12
STRIDES = (4, 8)


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return x * self.scale


def stem(cin, cout, stride):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, stride=stride, padding=1, bias=False),
        nn.GroupNorm(4, cout),
        nn.SiLU(),
    )


def tower(depth=2):
    mods = []
    for _ in range(depth):
        mods += [nn.Conv2d(FPN, FPN, 3, padding=1), nn.GroupNorm(3, FPN), nn.ReLU()]
    return nn.Sequential(*mods)


class FCOS(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem1 = stem(3, 8, 2)
        self.stem2 = stem(8, 12, 2)
        self.stem3 = stem(12, 16, 2)
        self.lateral4 = nn.Conv2d(16, FPN, 1)
        self.lateral3 = nn.Conv2d(12, FPN, 1)
        self.smooth3 = nn.Conv2d(FPN, FPN, 3, padding=1)
        self.cls_tower = tower()
        self.box_tower = tower()
        self.cls_out = nn.Conv2d(FPN, CLASSES, 3, padding=1)
        self.box_out = nn.Conv2d(FPN, 4, 3, padding=1)
        self.ctr_out = nn.Conv2d(FPN, 1, 3, padding=1)
        nn.init.constant_(self.cls_out.bias, -2.2)
        self.scales = nn.ModuleList([Scale() for _ in STRIDES])

    def forward(self, x):
        c3 = self.stem2(self.stem1(x.permute(0, 3, 1, 2)))
        p4 = self.lateral4(self.stem3(c3))
        p3 = self.lateral3(c3) + F.interpolate(p4, scale_factor=2, mode="nearest")
        p3 = self.smooth3(p3)
        levels = []
        for p, scale, stride in zip((p3, p4), self.scales, STRIDES):
            c, b = self.cls_tower(p), self.box_tower(p)
            box = scale(torch.exp(self.box_out(b))) * stride
            y = torch.cat([self.cls_out(c), box, self.ctr_out(b)], dim=1)
            levels.append(y.flatten(2).transpose(1, 2))
        return torch.cat(levels, dim=1)


def detection_loss(y_pred, y_true):
    y_true = y_true.to(y_pred.dtype)
    cls = y_true[..., 0].long()
    pos = cls > 0
    n_pos = pos.sum().clamp(min=1)

    logits = y_pred[..., :CLASSES]
    hot = F.one_hot(cls, CLASSES + 1)[..., 1:].to(y_pred.dtype)
    bce = F.binary_cross_entropy_with_logits(logits, hot, reduction="none")
    pt = torch.exp(-bce)
    alpha = torch.where(hot > 0, 0.25, 0.75)
    focal = (alpha * (1 - pt) ** 2 * bce).sum() / n_pos

    p, g = y_pred[pos][:, CLASSES : CLASSES + 4], y_true[pos][:, 1:5]
    lo, hi = torch.minimum(p, g), torch.maximum(p, g)
    inter = (lo[:, 0] + lo[:, 2]) * (lo[:, 1] + lo[:, 3])
    hull = (hi[:, 0] + hi[:, 2]) * (hi[:, 1] + hi[:, 3])
    area = lambda z: (z[:, 0] + z[:, 2]) * (z[:, 1] + z[:, 3])
    union = area(p) + area(g) - inter
    giou = inter / (union + 1e-7) - (hull - union) / (hull + 1e-7)
    ctr = y_true[pos][:, 5]
    box = ((1 - giou) * ctr).sum() / ctr.sum().clamp(min=1e-6)

    ctr_loss = F.binary_cross_entropy_with_logits(y_pred[pos][:, -1], ctr, reduction="sum") / n_pos
    return focal + box + ctr_loss


def build():
    return FCOS()
