import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class ArcMarginProduct(nn.Module):
    def __init__(self, in_features, out_features, s=16.0, m=0.30):
        super().__init__()
        self.s, self.m = s, m
        self.weight = nn.Parameter(torch.empty(in_features, out_features))
        nn.init.xavier_uniform_(self.weight)
        self.cos_m, self.sin_m = math.cos(m), math.sin(m)
        self.th = math.cos(math.pi - m)
        self.mm = math.sin(math.pi - m) * m

    def forward(self, x, label):
        cosine = F.normalize(x) @ F.normalize(self.weight)
        sine = torch.sqrt((1.0 - cosine.pow(2)).clamp(1e-9, 1))
        phi = cosine * self.cos_m - sine * self.sin_m
        phi = torch.where(cosine > 0, phi, cosine)
        one_hot = torch.zeros_like(cosine).scatter_(1, label.view(-1, 1).long(), 1)
        return self.s * (one_hot * phi + (1.0 - one_hot) * cosine)


def conv3x3(i, o, stride=1):
    return nn.Conv2d(i, o, 3, stride=stride, padding=1, bias=False)


class IBasicBlock(nn.Module):
    def __init__(self, inplanes, planes, stride=1):
        super().__init__()
        self.bn1 = nn.GroupNorm(4, inplanes)
        self.conv1 = conv3x3(inplanes, planes)
        self.bn2 = nn.GroupNorm(4, planes)
        self.prelu = nn.PReLU(planes)
        self.conv2 = conv3x3(planes, planes, stride)
        self.bn3 = nn.GroupNorm(4, planes)
        self.downsample = None
        if stride != 1:
            self.downsample = nn.Sequential(
                nn.Conv2d(inplanes, planes, 1, stride, bias=False), nn.GroupNorm(4, planes)
            )

    def forward(self, x):
        out = self.prelu(self.bn2(self.conv1(self.bn1(x))))
        out = self.bn3(self.conv2(out))
        return out + (x if self.downsample is None else self.downsample(x))


class Net(nn.Module):
    def __init__(self, num_classes=12, emb=16):
        super().__init__()
        self.input_layer = nn.Sequential(conv3x3(1, 8), nn.GroupNorm(4, 8), nn.PReLU(8))
        self.body = nn.Sequential(IBasicBlock(8, 8), IBasicBlock(8, 16, 2), IBasicBlock(16, 16, 2))
        self.output_layer = nn.Sequential(
            nn.GroupNorm(4, 16),
            nn.Conv2d(16, 16, 4, groups=16, bias=False),
            nn.Flatten(),
            nn.Linear(16, emb, bias=False),
        )
        self.head = ArcMarginProduct(emb, num_classes)

    def forward(self, face, label):
        return self.head(self.output_layer(self.body(self.input_layer(face))), label)
