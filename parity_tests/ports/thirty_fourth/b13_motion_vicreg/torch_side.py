import torch
import torch.nn.functional as F
from torch import nn


def channel_shuffle(x, groups):
    batch, channels, length = x.shape
    return x.view(batch, channels // groups, groups, length).transpose(1, 2).reshape(batch, channels, length)


class ShuffleUnit(nn.Module):
    def __init__(self, channels, groups=3):
        super().__init__()
        self.groups = groups
        self.conv_in = nn.Conv1d(channels, channels, 1, groups=groups, bias=False)
        self.norm = nn.InstanceNorm1d(channels, affine=True)
        self.depthwise = nn.Conv1d(channels, channels, 5, padding=2, groups=channels)
        self.conv_out = nn.Conv1d(channels, channels, 1, groups=groups)

    def forward(self, x):
        y = F.relu(self.norm(self.conv_in(x)))
        y = channel_shuffle(y, self.groups)
        return F.relu(x + self.conv_out(self.depthwise(y)))


class MotionVICReg(nn.Module):
    def __init__(self, channels=24, expanded=16):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv1d(6, channels, 5, stride=2),
            nn.ReLU(),
            ShuffleUnit(channels),
            ShuffleUnit(channels),
            nn.AdaptiveAvgPool1d(1),
            nn.Flatten(),
        )
        self.expander = nn.Sequential(nn.Linear(channels, 32), nn.ReLU(), nn.Linear(32, expanded))

    def forward(self, motion):
        return self.expander(self.encoder(motion.transpose(1, 2)))


def vicreg(z1, z2, sim=25.0, var=25.0, cov=1.0):
    n, d = z1.shape
    loss = sim * F.mse_loss(z1, z2)
    for z in (z1, z2):
        loss = loss + var / 2 * F.relu(1 - torch.sqrt(z.var(dim=0) + 1e-4)).mean()
        c = torch.cov(z.T)
        loss = loss + cov * (c.pow(2).sum() - c.diagonal().pow(2).sum()) / d
    return loss


def step(model, batch, decay=1e-2):
    first, second = batch
    penalty = sum(p.square().sum() for p in model.expander.parameters())
    return vicreg(model(first), model(second)) + decay * penalty


def build():
    return MotionVICReg()
