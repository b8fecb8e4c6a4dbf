import torch
from torch import nn
from torch.nn import functional as F


class GatedBlock(nn.Module):
    """Filter and gate are the two halves of one convolution."""

    def __init__(self, residual, skip, dilation, last):
        super().__init__()
        self.pad = 2 * dilation
        self.conv = nn.Conv1d(residual, 2 * residual, 3, dilation=dilation)
        self.mix = None if last else nn.Conv1d(residual, residual, 1)
        self.skip = nn.Conv1d(residual, skip, 1)

    def forward(self, x):
        filtered, gate = self.conv(F.pad(x, (self.pad, 0))).chunk(2, dim=1)
        gated = torch.tanh(filtered) * torch.sigmoid(gate)
        return (x if self.mix is None else x + self.mix(gated)), self.skip(gated)


class WaveNet(nn.Module):
    """Takes (batch, time, 1) as the Keras model does; channels first inside."""

    def __init__(self, levels=16, residual=16, skip=24, dilations=(1, 2, 4, 8)):
        super().__init__()
        self.front = nn.Conv1d(1, residual, 2, padding=1)
        self.blocks = nn.ModuleList(GatedBlock(residual, skip, d, d == dilations[-1]) for d in dilations)
        self.post1 = nn.Conv1d(skip, skip, 1)
        self.post2 = nn.Conv1d(skip, levels, 1)

    def forward(self, signal):
        x = self.front(signal.transpose(1, 2))[..., :-1]
        total = 0
        for block in self.blocks:
            x, skip = block(x)
            total = total + skip
        x = F.relu(self.post1(F.relu(total)))
        return self.post2(x).transpose(1, 2)
