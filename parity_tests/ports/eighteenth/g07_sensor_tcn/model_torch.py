import torch.nn as nn
import torch.nn.functional as F


class ChannelNorm(nn.LayerNorm):
    """Layer norm over the channels of (batch, channels, time)."""

    def forward(self, x):
        return super().forward(x.transpose(1, 2)).transpose(1, 2)


class CausalConv(nn.Conv1d):
    def forward(self, x):
        left = (self.kernel_size[0] - 1) * self.dilation[0]
        return super().forward(F.pad(x, (left, 0)))


class TemporalBlock(nn.Module):
    def __init__(self, n_in, n_out, kernel_size, dilation, dropout):
        super().__init__()
        self.net = nn.Sequential(
            CausalConv(n_in, n_out, kernel_size, dilation=dilation),
            ChannelNorm(n_out, eps=1e-3),
            nn.ReLU(),
            nn.Dropout1d(dropout),
            CausalConv(n_out, n_out, kernel_size, dilation=dilation),
            ChannelNorm(n_out, eps=1e-3),
            nn.ReLU(),
            nn.Dropout1d(dropout),
        )
        self.downsample = nn.Conv1d(n_in, n_out, 1) if n_in != n_out else None

    def forward(self, x):
        res = x if self.downsample is None else self.downsample(x)
        return F.relu(self.net(x) + res)


class TCN(nn.Module):
    def __init__(self, inputs=3, channels=(12, 12, 16), kernel_size=3, dropout=0.15):
        super().__init__()
        blocks = []
        for i, width in enumerate(channels):
            blocks.append(TemporalBlock(inputs, width, kernel_size, 2**i, dropout))
            inputs = width
        self.blocks = nn.Sequential(*blocks)
        self.forecast = nn.Linear(inputs, 1)

    def forward(self, series):
        h = self.blocks(series.transpose(1, 2))
        return self.forecast(h[..., -1])


def build():
    return TCN()
