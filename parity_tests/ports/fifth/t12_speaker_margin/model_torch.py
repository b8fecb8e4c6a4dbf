import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class TDNN(nn.Module):
    def __init__(self, c_in, c_out, size, dilation=1, norm=True):
        super().__init__()
        self.conv = nn.Conv1d(c_in, c_out, size, dilation=dilation)
        self.norm = nn.LayerNorm(c_out, eps=1e-3) if norm else None

    def forward(self, x):
        x = F.relu(self.conv(x))
        if self.norm is not None:
            x = self.norm(x.transpose(1, 2)).transpose(1, 2)
        return x


class StatisticsPooling(nn.Module):
    def __init__(self, channels, bottleneck, eps=1e-5):
        super().__init__()
        self.attention = nn.Sequential(
            nn.Conv1d(channels, bottleneck, 1),
            nn.Tanh(),
            nn.Conv1d(bottleneck, channels, 1),
            nn.Softmax(dim=2),
        )
        self.eps = eps

    def forward(self, x):
        w = self.attention(x)
        mu = (w * x).sum(2)
        sigma = ((w * (x - mu[..., None]).pow(2)).sum(2) + self.eps).sqrt()
        return torch.cat([mu, sigma, (x.var(2, correction=0) + self.eps).sqrt()], dim=1)


class Net(nn.Module):
    """Takes (batch, bands, frames)."""

    def __init__(self, bands=16, speakers=12):
        super().__init__()
        self.frame1 = TDNN(bands, 32, 5)
        self.frame2 = TDNN(32, 32, 3, dilation=2)
        self.frame3 = TDNN(32, 32, 3, dilation=3, norm=False)
        self.pool = StatisticsPooling(32, 16)
        self.embedding = nn.Linear(96, 24)
        self.prototypes = nn.Parameter(torch.randn(speakers, 24))

    def forward(self, frames):
        x = self.frame3(self.frame2(self.frame1(frames)))
        x = self.embedding(self.pool(x))
        return F.normalize(x) @ F.normalize(self.prototypes).T


class AAMSoftmax(nn.Module):
    def __init__(self, scale=16.0, margin=0.3):
        super().__init__()
        self.scale = scale
        self.cos_m, self.sin_m = math.cos(margin), math.sin(margin)

    def forward(self, cosine, label):
        cosine = cosine.clamp(-1 + 1e-6, 1 - 1e-6)
        sine = (1.0 - cosine.pow(2)).sqrt()
        phi = cosine * self.cos_m - sine * self.sin_m
        phi = torch.where(cosine > 0, phi, cosine)
        target = F.one_hot(label.long().flatten(), cosine.shape[1]).bool()
        return F.cross_entropy(self.scale * torch.where(target, phi, cosine), label.long().flatten())


margin_loss = AAMSoftmax()
