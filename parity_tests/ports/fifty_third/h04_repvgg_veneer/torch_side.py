import torch
import torch.nn.functional as F
from torch import nn


def bn(ch):
    return nn.BatchNorm2d(ch, eps=1e-5, momentum=0.1)


class RepVGGBlock(nn.Module):
    """3x3 + 1x1 (+ identity) branches, not yet re-parameterised."""

    def __init__(self, cin, cout, stride=1, groups=1, se=False):
        super().__init__()
        self.stride = stride
        self.rbr_identity = bn(cin) if stride == 1 and cin == cout else None
        self.rbr_dense = nn.Sequential(
            nn.Conv2d(cin, cout, 3, stride=stride, groups=groups, bias=False), bn(cout)
        )
        self.rbr_1x1 = nn.Sequential(
            nn.Conv2d(cin, cout, 1, stride=stride, groups=groups, bias=False), bn(cout)
        )
        self.se = (
            nn.Sequential(
                nn.AdaptiveAvgPool2d(1),
                nn.Conv2d(cout, cout // 4, 1),
                nn.ReLU(),
                nn.Conv2d(cout // 4, cout, 1),
                nn.Sigmoid(),
            )
            if se
            else None
        )

    def pad(self, x):
        sides = []
        for n in (x.shape[-1], x.shape[-2]):
            total = max((-(-n // self.stride) - 1) * self.stride + 3 - n, 0)
            sides += [total // 2, total - total // 2]
        return F.pad(x, sides)

    def forward(self, x):
        y = self.rbr_dense(self.pad(x)) + self.rbr_1x1(x)
        if self.rbr_identity is not None:
            y = y + self.rbr_identity(x)
        if self.se is not None:
            y = y * self.se(y)
        return F.relu(y)


class VeneerNet(nn.Module):
    def __init__(self, num_classes=5):
        super().__init__()
        self.stage0 = RepVGGBlock(3, 8, stride=2)
        self.stage1 = nn.Sequential(RepVGGBlock(8, 16, stride=2), RepVGGBlock(16, 16, groups=2, se=True))
        self.stage2 = nn.Sequential(RepVGGBlock(16, 24, stride=2), RepVGGBlock(24, 24, groups=2, se=True))
        self.linear = nn.Linear(24, num_classes)

    def forward(self, image):
        x = image.permute(0, 3, 1, 2) / 127.5 - 1.0
        x = self.stage2(self.stage1(self.stage0(x)))
        return self.linear(x.mean((-2, -1)))


def loss(outputs, targets):
    targets = targets.long()
    w = outputs.new_tensor([0.5, 1.1, 0.8, 1.9, 1.4])
    ce = F.cross_entropy(outputs, targets, reduction="none")
    return (w[targets] * (ce + 1.0 - torch.exp(-ce))).mean()


def build():
    return VeneerNet()
