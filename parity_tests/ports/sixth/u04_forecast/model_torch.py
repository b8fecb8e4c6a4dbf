import torch
import torch.nn.functional as F
from torch import nn

HORIZON = 8
QUANTILES = (0.1, 0.5, 0.9)


class RevIN(nn.Module):
    def __init__(self, channels, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.scale = nn.Parameter(torch.ones(channels))
        self.shift = nn.Parameter(torch.zeros(channels))

    def forward(self, x):
        mean = x.mean(1, keepdim=True)
        std = torch.sqrt(x.var(1, keepdim=True) + self.eps)
        return (x - mean) / std * self.scale + self.shift, mean[..., :1], std[..., :1]

    def revert(self, y, mean, std):
        return (y - self.shift[0]) / self.scale[0] * std + mean


class Residual(nn.Module):
    def __init__(self, filters, dilation, rate):
        super().__init__()
        self.pad = 2 * dilation
        self.conv = nn.Conv1d(filters, 2 * filters, 3, dilation=dilation)
        self.mix = nn.Conv1d(filters, filters, 1)
        self.dropout = nn.Dropout(rate)

    def forward(self, x):
        signal, gate = self.conv(F.pad(x, (self.pad, 0))).chunk(2, dim=1)
        h = self.dropout(self.mix(signal.tanh() * gate.sigmoid()))
        return x + h, h


class Net(nn.Module):
    def __init__(self, channels=3, filters=16):
        super().__init__()
        self.revin = RevIN(channels)
        self.stem = nn.Conv1d(channels, filters, 1)
        self.blocks = nn.ModuleList(Residual(filters, d, 0.1) for d in (1, 2, 4, 8))
        self.hidden = nn.Linear(2 * filters, 48)
        self.out = nn.Linear(48, HORIZON * len(QUANTILES))

    def forward(self, past):
        x, mean, std = self.revin(past)
        x, skips = self.stem(x.transpose(1, 2)), 0.0
        for block in self.blocks:
            x, skip = block(x)
            skips = skips + skip
        last = torch.cat([skips[..., -1], skips.mean(-1)], dim=1)
        y = self.out(F.elu(self.hidden(last))).view(-1, HORIZON, len(QUANTILES))
        return self.revin.revert(y, mean, std)


def pinball(output, target):
    q = output.new_tensor(QUANTILES)
    error = output - target.unsqueeze(-1)
    return torch.maximum(q * error, (q - 1) * error).sum(-1).mean()
