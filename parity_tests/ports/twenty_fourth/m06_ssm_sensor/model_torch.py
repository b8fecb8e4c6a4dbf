"""State-space life estimator, convolutional form.

Training runs on whole windows, so the scan is replaced by one causal
depthwise convolution with the impulse response of the states.
"""

import torch
import torch.nn.functional as F
from torch import nn

SENSORS = 4
CHANNELS, STATES, DEPTH = 8, 4, 2


class DiagonalSSM(nn.Module):
    """Zero-order-hold diagonal SSM on (batch, time, channels)."""

    def __init__(self, channels, states):
        super().__init__()
        self.log_decay = nn.Parameter(torch.empty(channels, states).uniform_(-1, 1))
        self.b = nn.Parameter(0.7 * torch.randn(channels, states))
        self.c = nn.Parameter(0.7 * torch.randn(channels, states))
        self.skip = nn.Parameter(torch.ones(channels))
        self.log_dt = nn.Parameter(torch.empty(channels).uniform_(-2.5, -0.5))

    def impulse_response(self, length):
        """Response of every channel to a unit pulse, (channels, length)."""
        a = -self.log_decay.exp()
        a_dt = a * self.log_dt.exp().unsqueeze(-1)
        weight = self.c * self.b * torch.expm1(a_dt) / a
        lags = torch.arange(length, dtype=a.dtype, device=a.device)
        powers = torch.exp(a_dt.unsqueeze(-1) * lags)
        return torch.einsum("dn,dnl->dl", weight, powers)

    def forward(self, u):
        length, channels = u.shape[1:]
        kernel = self.impulse_response(length)
        u = u.transpose(1, 2)
        past = F.pad(u, (length - 1, 0))
        y = F.conv1d(past, kernel.unsqueeze(1), groups=channels)
        return (y + self.skip[:, None] * u).transpose(1, 2)


class Block(nn.Module):
    """Pre-norm SSM with a gated linear output and a residual path."""

    def __init__(self, channels, states):
        super().__init__()
        self.norm = nn.LayerNorm(channels, eps=1e-5)
        self.ssm = DiagonalSSM(channels, states)
        self.value = nn.Linear(channels, channels)
        self.gate = nn.Linear(channels, channels)

    def forward(self, x):
        y = F.silu(self.ssm(self.norm(x)))
        y = F.glu(torch.cat((self.value(y), self.gate(y)), dim=-1), dim=-1)
        return x + y


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(SENSORS, CHANNELS)
        self.blocks = nn.Sequential(*(Block(CHANNELS, STATES) for _ in range(DEPTH)))
        self.life = nn.Linear(CHANNELS, 2)

    def forward(self, signal):
        x = self.blocks(self.embed(signal))
        return self.life(x.mean(dim=1))
