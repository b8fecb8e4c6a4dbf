import torch
from torch import nn
from torch.nn import functional as F

STEPS, SENSORS = 24, 5


class Mixing(nn.Module):
    """Works on (batch, width, time)."""

    def __init__(self, width=16, inner=32):
        super().__init__()
        self.ln_gain = nn.Parameter(torch.ones(width, STEPS))
        self.ln_bias = nn.Parameter(torch.zeros(width, STEPS))
        self.glu = nn.Linear(STEPS, 2 * STEPS)
        self.channel_gain = nn.Parameter(torch.ones(width))
        self.conv_up = nn.Conv1d(width, inner, 1)
        self.conv_down = nn.Conv1d(inner, width, 1)

    def forward(self, x):
        y = F.layer_norm(x, x.shape[1:], self.ln_gain, self.ln_bias, eps=1e-3)
        x = x + F.glu(self.glu(y), dim=-1)
        y = x - x.mean(1, keepdim=True)
        y = y * torch.rsqrt(y.pow(2).mean(1, keepdim=True) + 1e-3) * self.channel_gain[:, None]
        return x + self.conv_down(F.mish(self.conv_up(y)))


class Net(nn.Module):
    """Takes and gives (batch, time, sensors)."""

    def __init__(self, width=16):
        super().__init__()
        self.default = nn.Parameter(torch.zeros(SENSORS))
        self.stem = nn.Linear(2 * SENSORS, width)
        self.body = nn.Sequential(Mixing(width), Mixing(width))
        self.tail = nn.Linear(width, SENSORS)

    def forward(self, series, seen):
        filled = torch.where(seen > 0, series, self.default.expand_as(series))
        x = self.stem(torch.cat([filled, seen.to(series)], dim=2))
        x = self.body(x.transpose(1, 2)).transpose(1, 2)
        return self.tail(x) + filled


def step(model, batch):
    inputs, truth = batch[:2]
    series, seen = inputs["series"], inputs["seen"]
    out = model(series, seen)
    mirrored = model(series.flip(1), seen.flip(1)).flip(1)
    hidden = seen == 0
    error = F.mse_loss(out, truth.to(out), reduction="none")
    gaps = error.masked_fill(~hidden, 0).sum((1, 2)) / (hidden.sum((1, 2)) + 1)
    rest = error.masked_fill(hidden, 0).mean()
    apart = F.l1_loss(out, mirrored)
    return gaps.mean() + rest / 4 + apart / 8
