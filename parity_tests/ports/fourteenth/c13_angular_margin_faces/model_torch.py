import math

import torch
from torch import nn
from torch.nn import functional as F


class KerasBatchNorm(nn.BatchNorm1d):
    """Keeps the biased variance as its running statistic, as Keras does."""

    def forward(self, x):
        if not self.training:
            return super().forward(x)
        batch = x.detach()
        self.running_mean += self.momentum * (batch.mean(0) - self.running_mean)
        self.running_var += self.momentum * (batch.var(0, correction=0) - self.running_var)
        return F.batch_norm(x, None, None, self.weight, self.bias, training=True, eps=self.eps)


class ArcFace(nn.Module):
    def __init__(self, dim, classes, m=0.4, s=12.0):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(classes, dim))
        nn.init.xavier_uniform_(self.weight)
        self.m, self.s = m, s

    def forward(self, x, label):
        cos = F.linear(F.normalize(x), F.normalize(self.weight))
        if not self.training:
            return self.s * cos
        index = label.view(-1, 1)
        own = cos.gather(1, index)
        theta = own.clamp(-1 + 1e-7, 1 - 1e-7).acos()
        target = torch.where(
            theta < math.pi - self.m, (theta + self.m).cos(), own - self.m * math.sin(self.m)
        )
        return self.s * cos.scatter(1, index, target)


class FaceNet(nn.Module):
    def __init__(self, inputs=20, hidden=24, dim=10, classes=8):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Linear(inputs, hidden, bias=False),
            KerasBatchNorm(hidden),
            nn.LeakyReLU(0.25),
            nn.Linear(hidden, hidden, bias=False),
            KerasBatchNorm(hidden),
            nn.LeakyReLU(0.25),
            nn.Linear(hidden, dim, bias=False),
            KerasBatchNorm(dim),
        )
        # Only the shift of the last norm is learnt: lengths are divided out anyway.
        self.backbone[-1].weight.requires_grad_(False)
        self.head = ArcFace(dim, classes)

    def forward(self, face, person):
        return self.head(self.backbone(face), person)
