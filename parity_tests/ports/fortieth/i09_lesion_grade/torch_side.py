from collections import OrderedDict

import torch
import torch.nn as nn
import torch.nn.functional as F

GRADES = 4
_W = torch.tensor([0.7, 1.1, 1.9])


class SamePadConv(nn.Conv2d):
    """TensorFlow's 'same' for any stride."""

    def forward(self, x):
        pads = []
        for n, k, s in zip(x.shape[:-3:-1], self.kernel_size[::-1], self.stride[::-1]):
            p = max((-(-n // s) - 1) * s + k - n, 0)
            pads += [p // 2, p - p // 2]
        return super().forward(F.pad(x, pads))


class SE(nn.Module):
    def __init__(self, c, r=4):
        super().__init__()
        self.fc = nn.Sequential(nn.Conv2d(c, c // r, 1), nn.SiLU(), nn.Conv2d(c // r, c, 1), nn.Hardsigmoid())

    def forward(self, x):
        return x * self.fc(F.adaptive_avg_pool2d(x, 1))


class Residual(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.shortcut = nn.Sequential()
        if stride > 1:
            self.shortcut.append(nn.AvgPool2d(stride))
        if cin != cout:
            self.shortcut.append(nn.Conv2d(cin, cout, 1))
        self.body = nn.Sequential(
            OrderedDict(
                [
                    ("c1", SamePadConv(cin, cout, 3, stride, bias=False)),
                    ("n1", nn.GroupNorm(4, cout, eps=1e-3)),
                    ("a1", nn.SiLU()),
                    ("c2", SamePadConv(cout, cout, 3, bias=False)),
                    ("n2", nn.GroupNorm(4, cout, eps=1e-3)),
                    ("se", SE(cout)),
                ]
            )
        )

    def forward(self, x):
        return F.silu(self.body(x) + self.shortcut(x))


class OrdinalHead(nn.Module):
    def __init__(self, feats, grades=GRADES):
        super().__init__()
        self.w = nn.Linear(feats, 1, bias=False)
        self.theta0 = nn.Parameter(torch.full((1,), -0.6))
        self.delta = nn.Parameter(torch.full((grades - 2,), 0.3))

    def forward(self, x):
        steps = torch.cat([self.theta0, self.delta.exp()])
        return self.w(x) - torch.cumsum(steps, 0)


class GradeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = SamePadConv(1, 8, 5)
        self.stages = nn.Sequential(Residual(8, 8, 1), Residual(8, 16, 2), Residual(16, 16, 2))
        self.head = OrdinalHead(16)

    def forward(self, scan):
        x = scan.permute(0, 3, 1, 2)
        std, mean = torch.std_mean(x, correction=0, keepdim=True)
        x = (x - mean) / std.clamp_min(1.0 / x.shape[-1])
        x = self.stages(self.stem(x))
        return self.head(x.mean((2, 3)))


def build():
    return GradeNet()


def ordinal_loss(logits, grade):
    levels = torch.arange(GRADES - 1, device=logits.device)
    t = (grade.reshape(-1, 1) > levels).to(logits.dtype).mul(0.96).add(0.02)
    ce = F.binary_cross_entropy_with_logits(logits, t, pos_weight=_W.to(logits), reduction="none")
    return ce.sum(1).mean()
