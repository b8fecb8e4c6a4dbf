import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def norm(c):
    return nn.BatchNorm2d(c, eps=1e-3, momentum=0.1)


def same_pad(x, value=0.0):
    # 3x3, stride 2, even sizes
    return F.pad(x, (0, 1, 0, 1), value=value)


class Conv(nn.Module):
    def __init__(self, cin, cout, k=3, s=1):
        super().__init__()
        self.s = s
        self.bn = norm(cout)
        self.conv = nn.Conv2d(cin, cout, k, s, padding=0 if s == 2 else k // 2, bias=False)

    def forward(self, x):
        return self.bn(self.conv(same_pad(x) if self.s == 2 else x))


class BasicBlock(nn.Module):
    def __init__(self, cin, cout, s):
        super().__init__()
        self.conv1 = Conv(cin, cout, 3, s)
        self.conv2 = Conv(cout, cout)
        self.down = None
        if s != 1 or cin != cout:
            self.down = nn.Sequential(nn.AvgPool2d(s), Conv(cin, cout, 1))

    def forward(self, x):
        y = self.conv2(self.conv1(x).relu())
        return (y + (x if self.down is None else self.down(x))).relu()


class Backbone(nn.Module):
    def __init__(self, widths, blocks=2, stem=8):
        super().__init__()
        self.stem = Conv(1, stem, 3, 2)
        self.stages = nn.ModuleList()
        c = stem
        for w in widths:
            self.stages.append(
                nn.Sequential(*[BasicBlock(c if b == 0 else w, w, 2 if b == 0 else 1) for b in range(blocks)])
            )
            c = w

    def forward(self, x):
        x = self.stem(x).relu()
        out = []
        for stage in self.stages:
            x = stage(x)
            out.append(x)
        return out


def sepconv(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cin, 3, padding=1, groups=cin, bias=False),
        nn.Conv2d(cin, cout, 1),
    )


class Node(nn.Module):
    def __init__(self, n_in, width):
        super().__init__()
        self.weights = nn.Parameter(torch.ones(n_in))
        self.conv = sepconv(width, width)
        self.bn = norm(width)

    def forward(self, *xs):
        w = self.weights.relu()
        w = w / (w.sum() + 1e-4)
        x = torch.einsum("i,i...->...", w, torch.stack(xs))
        return self.bn(self.conv(F.silu(x)))


def pool(x):
    return F.max_pool2d(same_pad(x, -math.inf), 3, 2)


class BiFPNLayer(nn.Module):
    """Top-down, then bottom-up, for any number of levels (fine to coarse)."""

    def __init__(self, width, levels=3):
        super().__init__()
        self.td = nn.ModuleList(Node(2, width) for _ in range(levels - 1))
        self.bu = nn.ModuleList(Node(3 if i < levels - 2 else 2, width) for i in range(levels - 1))

    def forward(self, feats):
        mid = list(feats)
        for i in reversed(range(len(feats) - 1)):
            mid[i] = self.td[i](feats[i], F.interpolate(mid[i + 1], scale_factor=2, mode="nearest"))
        out = mid[:1]
        last = len(feats) - 1
        for i in range(1, last + 1):
            below = pool(mid[i - 1])
            skip = (feats[i], mid[i]) if i < last else (feats[i],)
            out.append(self.bu[i - 1](*skip, below))
        return out


class Head(nn.Module):
    def __init__(self, width, cout, prior, depth=2, levels=3):
        super().__init__()
        self.cout = cout
        self.bns = nn.ModuleList(nn.ModuleList(norm(width) for _ in range(depth)) for _ in range(levels))
        self.convs = nn.ModuleList(sepconv(width, width) for _ in range(depth))
        self.pred = nn.Conv2d(width, cout, 3, padding=1)
        nn.init.constant_(self.pred.bias, prior)

    def forward(self, feats):
        out = []
        for x, bns in zip(feats, self.bns):
            for conv, bn in zip(self.convs, bns):
                x = F.silu(bn(conv(x)))
            out.append(self.pred(x).flatten(2))
        return torch.cat(out, dim=2).mT


class Detector(nn.Module):
    def __init__(self, classes=3, width=10, widths=(8, 12, 16), repeats=2):
        super().__init__()
        self.box_head = Head(width, 4, 0.5)
        self.cls_head = Head(width, classes, -3.0)
        self.backbone = Backbone(widths)
        self.laterals = nn.ModuleList(Conv(c, width, 1) for c in widths)
        self.neck = nn.Sequential(*[BiFPNLayer(width) for _ in range(repeats)])

    def forward(self, thermal):
        x = (thermal.movedim(-1, 1) - 20.0) / 10.0
        feats = [lat(f) for lat, f in zip(self.laterals, self.backbone(x))]
        feats = self.neck(feats)
        return {"cls": self.cls_head(feats), "box": F.softplus(self.box_head(feats))}


def cls_loss(outputs, targets, alpha=0.25, gamma=2.0):
    ce = F.binary_cross_entropy_with_logits(outputs, targets, reduction="none")
    with torch.no_grad():
        p = outputs.sigmoid()
        miss = torch.where(targets > 0.5, 1 - p, p)
        weight = torch.where(targets > 0.5, alpha, 1 - alpha) * miss**gamma
    hives = targets.sum((1, 2)).clamp(min=1)
    return ((weight * ce).sum((1, 2)) / hives).mean()


def box_loss(outputs, targets, eps=1e-7):
    true, hit = targets.split([4, 1], dim=-1)

    def area(d):
        l, t, r, b = d.unbind(-1)
        return (l + r) * (t + b)

    inter, hull = area(torch.minimum(outputs, true)), area(torch.maximum(outputs, true))
    union = area(true) + area(outputs) - inter
    giou = inter / (union + eps) - (hull - union) / (hull + eps)
    hit = hit.squeeze(-1)
    return (((1 - giou) * hit).sum(1) / hit.sum(1).clamp(min=1)).mean()


def optimizer(params):
    params = [p for p in params if p.requires_grad]
    groups = [
        {"params": [p for p in params if p.ndim > 1], "weight_decay": 4e-3},
        {"params": [p for p in params if p.ndim <= 1], "weight_decay": 0.0},
    ]
    sgd = torch.optim.SGD(groups, lr=0.005)

    def factor(n, warmup=8, total=60, start=0.1, floor=0.05):
        if n < warmup:
            return start + (1 - start) * n / warmup
        t = min((n - warmup) / total, 1.0)
        return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * t))

    return sgd, torch.optim.lr_scheduler.LambdaLR(sgd, factor)


def build():
    return Detector()
