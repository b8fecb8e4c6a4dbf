import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class BandGate(nn.Module):
    def __init__(self, channels, hidden=6):
        super().__init__()
        self.v = nn.Parameter(torch.empty(hidden))
        self.proj = nn.Linear(channels, hidden)
        nn.init.normal_(self.v, std=0.4)

    def forward(self, x):  # (n, c, d, h, w)
        s = x.flatten(3).mean(-1).transpose(1, 2)  # (n, d, c)
        e = torch.tanh(self.proj(s)) @ self.v  # (n, d)
        a = torch.softmax(e, dim=-1) * e.shape[-1]
        return torch.addcmul(x, x, a[:, None, :, None, None])


class HyperNet(nn.Module):
    def __init__(self, bands=20, classes=6):
        super().__init__()
        self.head = nn.Sequential(nn.Linear(48, 32), nn.ReLU(), nn.Linear(32, classes))
        self.conv_a = nn.Conv3d(1, 8, (5, 3, 3), bias=False)
        self.norm_a = nn.BatchNorm3d(8, eps=1e-3, momentum=0.01)
        self.conv_b = nn.Conv3d(8, 12, 3, stride=(2, 1, 1), padding=(0, 1, 1))
        self.norm_b = nn.BatchNorm3d(12, eps=1e-3, momentum=0.1)
        self.gate = BandGate(12)
        self.spatial = nn.ModuleDict(
            {
                "point": nn.Conv2d(96, 24, 1),
                "depth": nn.Conv2d(24, 24, 3, padding=1, groups=24),
            }
        )
        g = np.linspace(0.8, 1.25, bands, dtype=np.float32)
        self.register_buffer("gain", torch.from_numpy(g).view(1, 1, bands, 1, 1), persistent=False)

    def forward(self, cube):
        x = cube.permute(0, 3, 1, 2).unsqueeze(1) / self.gain
        x = F.leaky_relu(self.norm_a(self.conv_a(x)), 0.3)
        x = F.pad(x, (0, 0, 0, 0, 0, 1))
        x = F.leaky_relu(self.norm_b(self.conv_b(x)), 0.1)
        x = self.gate(x)
        x = x.transpose(1, 2).flatten(1, 2)  # bands outer, channels inner
        x = F.silu(self.spatial["point"](x))
        x = self.spatial["depth"](x)
        return self.head(torch.cat([x[..., 2, 2], x.amax((2, 3))], 1))


def build():
    return HyperNet()
