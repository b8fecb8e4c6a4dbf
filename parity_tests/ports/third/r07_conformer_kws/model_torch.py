import torch
import torch.nn.functional as F
from torch import nn


class Transpose(nn.Module):
    def forward(self, x):
        return x.transpose(1, 2)


class BatchNorm1d(nn.BatchNorm1d):
    def forward(self, x):
        if not self.training:
            return super().forward(x)
        with torch.no_grad():
            self.running_mean += self.momentum * (x.mean((0, 2)) - self.running_mean)
            self.running_var += self.momentum * (x.var((0, 2), unbiased=False) - self.running_var)
        return F.batch_norm(x, None, None, self.weight, self.bias, training=True, eps=self.eps)


def feed_forward(dim, mult=2):
    return nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, dim * mult), nn.SiLU(), nn.Linear(dim * mult, dim))


def conv_module(dim, kernel_size):
    return nn.Sequential(
        nn.LayerNorm(dim),
        Transpose(),
        nn.Conv1d(dim, 2 * dim, 1),
        nn.GLU(dim=1),
        nn.Conv1d(dim, dim, kernel_size, padding=kernel_size // 2, groups=dim),
        BatchNorm1d(dim, momentum=0.1),
        nn.SiLU(),
        nn.Conv1d(dim, dim, 1),
        Transpose(),
    )


class ConformerBlock(nn.Module):
    def __init__(self, dim, heads, kernel_size):
        super().__init__()
        self.ff1 = feed_forward(dim)
        self.norm_attn = nn.LayerNorm(dim)
        self.self_attn = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.conv = conv_module(dim, kernel_size)
        self.ff2 = feed_forward(dim)
        self.norm_out = nn.LayerNorm(dim)

    def forward(self, x):
        x = x + self.ff1(x) / 2
        y = self.norm_attn(x)
        x = x + self.self_attn(y, y, y, need_weights=False)[0]
        x = x + self.conv(x)
        x = x + self.ff2(x) / 2
        return self.norm_out(x)


class Conformer(nn.Module):
    def __init__(self, n_mels=20, dim=16, heads=2, depth=2, classes=10):
        super().__init__()
        self.subsample = nn.Conv1d(n_mels, dim, 5, stride=2)
        self.blocks = nn.Sequential(*[ConformerBlock(dim, heads, 7) for _ in range(depth)])
        self.classifier = nn.Linear(dim, classes)

    def forward(self, mel):
        x = F.relu(self.subsample(mel.transpose(1, 2))).transpose(1, 2)
        return self.classifier(self.blocks(x).mean(dim=1))


def build():
    return Conformer()
