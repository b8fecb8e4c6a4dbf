import torch
from torch import nn
from torch.nn import functional as F


def norm(channels):
    return nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01)


class SameConv(nn.Conv2d):
    """Convolution without bias that pads on the far side when it strides over even sizes."""

    def forward(self, x):
        if self.stride[0] > 1:
            x = F.pad(x, (0, 1, 0, 1))
        return super().forward(x)


def same_conv(c_in, c_out, k, stride=1):
    return SameConv(c_in, c_out, k, stride=stride, padding=k // 2 if stride == 1 else 0, bias=False)


class CBAM(nn.Module):
    def __init__(self, channels, ratio=4):
        super().__init__()
        self.spatial = nn.Conv2d(2, 1, 5, padding=2)
        self.mlp = nn.Sequential(
            nn.Conv2d(channels, channels // ratio, 1), nn.ReLU(), nn.Conv2d(channels // ratio, channels, 1)
        )

    def forward(self, x):
        pooled = torch.stack([x.mean((2, 3), keepdim=True), x.amax((2, 3), keepdim=True)])
        s, b = pooled.shape[:2]
        gate = self.mlp(pooled.flatten(0, 1)).unflatten(0, (s, b)).sum(0).sigmoid()
        x = x * gate
        stats = torch.cat([x.mean(1, keepdim=True), x.amax(1, keepdim=True)], 1)
        return x * self.spatial(stats).sigmoid()


class Bottle2neck(nn.Module):
    def __init__(self, c_in, width, scale, c_out, stride=1):
        super().__init__()
        self.width, self.stride = width, stride
        self.downsample = None
        if stride > 1 or c_in != c_out:
            pool = nn.AvgPool2d(stride) if stride > 1 else nn.Identity()
            self.downsample = nn.Sequential(pool, nn.Conv2d(c_in, c_out, 1, bias=False), norm(c_out))
        self.conv1 = nn.Conv2d(c_in, width * scale, 1, bias=False)
        self.bn1 = norm(width * scale)
        self.convs = nn.ModuleList(same_conv(width, width, 3, stride) for _ in range(scale - 1))
        self.bns = nn.ModuleList(norm(width) for _ in range(scale - 1))
        self.pool = nn.AvgPool2d(3, stride, ceil_mode=True) if stride > 1 else nn.Identity()
        self.conv3 = nn.Conv2d(width * scale, c_out, 1, bias=False)
        self.bn3 = norm(c_out)
        self.attend = CBAM(c_out)

    def forward(self, x):
        identity = x if self.downsample is None else self.downsample(x)
        splits = F.relu(self.bn1(self.conv1(x))).split(self.width, 1)
        outs, carry = [], None
        for part, conv, bn in zip(splits, self.convs, self.bns):
            if carry is not None and self.stride == 1:
                part = part + carry
            carry = F.relu(bn(conv(part)))
            outs.append(carry)
        outs.append(self.pool(splits[-1]))
        y = self.attend(self.bn3(self.conv3(torch.cat(outs, 1))))
        return F.relu(y + identity)


class GrainSorter(nn.Module):
    def __init__(self, grades=6):
        super().__init__()
        self.stem = nn.Sequential(same_conv(3, 12, 3, stride=2), norm(12), nn.ReLU())
        self.stages = nn.Sequential(
            Bottle2neck(12, 5, 4, 16), Bottle2neck(16, 6, 4, 24, stride=2), Bottle2neck(24, 6, 4, 24)
        )
        self.fc = nn.Linear(24, grades)

    def forward(self, image):
        x = image.permute(0, 3, 1, 2) / 128 - 1.0
        return self.fc(self.stages(self.stem(x)).mean((2, 3)))


def build():
    return GrainSorter()
