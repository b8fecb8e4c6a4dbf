import math

import torch
import torch.nn.functional as F
from torch import nn

FRAMES, MELS, SPEAKERS, EMB = 48, 20, 10, 16
MARGIN, SCALE = 0.2, 15.0


class PCEN(nn.Module):
    """The smoother is unrolled into one matrix product over time."""

    def __init__(self, n, frames, floor=1e-6):
        super().__init__()
        self.floor = floor
        self.log_alpha = nn.Parameter(torch.full((n,), math.log(0.8)))
        self.log_delta = nn.Parameter(torch.full((n,), math.log(2.0)))
        self.log_root = nn.Parameter(torch.full((n,), math.log(0.5)))
        self.smooth = nn.Parameter(torch.full((n,), -1.5))
        lag = torch.arange(frames)[:, None] - torch.arange(frames)[None, :]
        self.register_buffer("lag", lag.clamp(min=0)[..., None], persistent=False)
        self.register_buffer("past", (lag >= 0)[..., None], persistent=False)

    def forward(self, e):
        s = torch.sigmoid(self.smooth)
        decay = torch.pow(1 - s, self.lag.to(e.dtype)) * self.past  # (T, T, C)
        weight = torch.cat([decay[:, :1], s * decay[:, 1:]], dim=1)  # m[0] = e[0]
        m = torch.einsum("tuc,buc->btc", weight, e)
        root, delta = self.log_root.exp(), self.log_delta.exp()
        smooth = (m + self.floor).pow(-self.log_alpha.exp())
        return (e * smooth + delta).pow(root) - delta.pow(root)


class SepConv(nn.Module):
    """TF-style 'same' depthwise + pointwise convolution on (B, C, T)."""

    def __init__(self, cin, cout, k, stride=1, dilation=1, mult=1):
        super().__init__()
        self.k, self.stride, self.dilation = k, stride, dilation
        self.depthwise = nn.Conv1d(
            cin, cin * mult, k, stride=stride, dilation=dilation, groups=cin, bias=False
        )
        self.pointwise = nn.Conv1d(cin * mult, cout, 1)

    def forward(self, x):
        t = x.shape[-1]
        span = (self.k - 1) * self.dilation + 1
        pad = max((math.ceil(t / self.stride) - 1) * self.stride + span - t, 0)
        x = F.pad(x, (pad // 2, pad - pad // 2))
        return self.pointwise(self.depthwise(x))


class SqueezeExcite(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.down = nn.Linear(c, c // 4)
        self.up = nn.Linear(c // 4, c)

    def forward(self, x):
        w = F.silu(self.down(x.mean(-1)))
        return x * F.hardsigmoid(self.up(w)).unsqueeze(-1)


class StatsPool(nn.Module):
    def __init__(self, c, hidden):
        super().__init__()
        self.att1 = nn.Conv1d(c, hidden, 1)
        self.att2 = nn.Conv1d(hidden, c, 1, bias=False)

    def forward(self, x):
        a = torch.softmax(self.att2(torch.tanh(self.att1(x))), dim=2)
        mean = (a * x).sum(2)
        var = (a * x * x).sum(2) - mean**2
        return torch.cat([mean, torch.sqrt(F.relu(var) + 1e-5)], dim=1)


class ChannelNorm(nn.LayerNorm):
    def forward(self, x):
        return super().forward(x.transpose(1, 2)).transpose(1, 2)


class SpeakerNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.pcen = PCEN(MELS, FRAMES)
        self.sep1 = SepConv(MELS, 24, 5, stride=2)
        self.norm1 = ChannelNorm(24, eps=1e-3)
        self.se1 = SqueezeExcite(24)
        self.sep2 = SepConv(24, 24, 3, dilation=3, mult=2)
        self.norm2 = ChannelNorm(24, eps=1e-3)
        self.pool = StatsPool(24, 12)
        self.embed = nn.Linear(48, EMB)
        self.centres = nn.Parameter(nn.init.xavier_normal_(torch.empty(SPEAKERS, EMB)))

    def forward(self, x):
        x = self.pcen(x).transpose(1, 2)
        x = self.se1(F.relu(self.norm1(self.sep1(x))))
        x = x + F.relu(self.norm2(self.sep2(x)))
        e = self.embed(self.pool(x))
        return F.linear(F.normalize(e), F.normalize(self.centres))


def am_softmax(y_pred, y_true):
    y = y_true.long().reshape(-1)
    logits = y_pred - MARGIN * F.one_hot(y, SPEAKERS).to(y_pred.dtype)
    return F.cross_entropy(SCALE * logits, y)


def build():
    return SpeakerNet()
