import torch
import torch.nn.functional as F
from torch import nn


def conv_block(c_in, c_out):
    return nn.Sequential(nn.Conv2d(c_in, c_out, 3, padding=1, bias=False), nn.GroupNorm(4, c_out), nn.ReLU())


class Gate(nn.Module):
    def __init__(self, c_skip, c_gate, hidden):
        super().__init__()
        self.theta = nn.Conv2d(c_skip, hidden, 1, bias=False)
        self.phi = nn.Conv2d(c_gate, hidden, 1)
        self.psi = nn.Conv2d(hidden, 1, 1)

    def forward(self, skip, gate):
        h = F.relu(self.theta(skip)) + F.relu(self.phi(gate))
        return skip * torch.sigmoid(self.psi(h))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc1 = conv_block(1, 8)
        self.enc2 = conv_block(8, 16)
        self.deep = conv_block(16, 16)
        self.gate = Gate(16, 16, 8)
        self.dec2 = conv_block(32, 16)
        self.dec1 = conv_block(24, 8)
        self.logits = nn.Conv2d(8, 1, 1)

    def forward(self, scan):
        fine = self.enc1(scan.movedim(-1, 1))
        mid = self.enc2(F.max_pool2d(fine, 2))
        deep = self.deep(F.max_pool2d(mid, 2))

        up = F.interpolate(deep, scale_factor=2, mode="bilinear", align_corners=False)
        x = self.dec2(torch.cat([self.gate(mid, up), up], dim=1))
        up = F.interpolate(x, scale_factor=2, mode="nearest")
        x = self.dec1(torch.cat([fine, up], dim=1))
        return self.logits(x).movedim(1, -1)


def bce_dice(logits, mask):
    prob = torch.sigmoid(logits)
    overlap = (prob * mask).sum()
    total = prob.sum() + mask.sum()
    dice = 1.0 - (2.0 * overlap + 1.0) / (total + 1.0)
    return F.binary_cross_entropy_with_logits(logits, mask) + dice
