import torch
import torch.nn.functional as F
from torch import nn


class KerasBatchNorm1d(nn.BatchNorm1d):
    def __init__(self, c):
        super().__init__(c, eps=1e-3, momentum=0.01)

    def forward(self, x):
        if self.training:
            with torch.no_grad():
                self.running_mean.lerp_(x.mean((0, 2)), self.momentum)
                self.running_var.lerp_(x.var((0, 2), unbiased=False), self.momentum)
        stats = (None, None) if self.training else (self.running_mean, self.running_var)
        return F.batch_norm(x, *stats, self.weight, self.bias, self.training, 0.0, self.eps)


class FeedForward(nn.Sequential):
    def __init__(self, dim):
        super().__init__(nn.LayerNorm(dim), nn.Linear(dim, 4 * dim), nn.SiLU(), nn.Linear(4 * dim, dim))


class ConvModule(nn.Module):
    def __init__(self, dim, kernel):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.pointwise1 = nn.Conv1d(dim, 2 * dim, 1)
        self.depthwise = nn.Conv1d(dim, dim, kernel, padding=kernel // 2, groups=dim)
        self.bn = KerasBatchNorm1d(dim)
        self.pointwise2 = nn.Conv1d(dim, dim, 1)

    def forward(self, x):
        x = self.norm(x).transpose(1, 2)
        a, b = self.pointwise1(x).chunk(2, dim=1)
        x = torch.sigmoid(a) * b
        x = F.silu(self.bn(self.depthwise(x)))
        return self.pointwise2(x).transpose(1, 2)


class Conformer(nn.Module):
    def __init__(self, dim=24, classes=6):
        super().__init__()
        self.subsample = nn.Linear(12, dim)
        self.ffn1 = FeedForward(dim)
        self.conv = ConvModule(dim, 5)
        self.ffn2 = FeedForward(dim)
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        x = self.subsample(x)
        x = x + 0.5 * self.ffn1(x)
        x = x + self.conv(x)
        x = x + self.ffn2(x)
        return self.head(self.norm(x).mean(dim=1))
