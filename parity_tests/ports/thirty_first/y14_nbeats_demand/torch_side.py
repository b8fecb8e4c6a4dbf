import numpy as np
import torch
from torch import nn


class NBeatsBlock(nn.Module):
    def __init__(self, backcast_len, hidden, nb_theta):
        super().__init__()
        self.stack = nn.Sequential(
            nn.Linear(backcast_len, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
        )
        self.theta_b_fc = nn.Linear(hidden, nb_theta, bias=False)
        self.theta_f_fc = nn.Linear(hidden, nb_theta, bias=False)

    def thetas(self, x):
        h = self.stack(x)
        return self.theta_b_fc(h), self.theta_f_fc(h)


class GenericBlock(NBeatsBlock):
    def __init__(self, backcast_len, forecast_len, hidden, nb_theta):
        super().__init__(backcast_len, hidden, nb_theta)
        self.backcast_fc = nn.Linear(nb_theta, backcast_len)
        self.forecast_fc = nn.Linear(nb_theta, forecast_len)

    def forward(self, x):
        tb, tf = self.thetas(x)
        return self.backcast_fc(tb), self.forecast_fc(tf)


class BasisBlock(NBeatsBlock):
    def __init__(self, make_basis, backcast_len, forecast_len, hidden):
        b, f = make_basis(backcast_len), make_basis(forecast_len)
        super().__init__(backcast_len, hidden, b.shape[0])
        self.register_buffer("S_b", torch.tensor(b))
        self.register_buffer("S_f", torch.tensor(f))

    def forward(self, x):
        tb, tf = self.thetas(x)
        return tb.mm(self.S_b.to(tb)), tf.mm(self.S_f.to(tf))


def polynomial(n, degree=2):
    return np.power(np.arange(n) / n, np.arange(degree + 1)[:, None])


def seasonality(n, harmonics=3):
    arg = 2 * np.pi * np.outer(np.arange(1, harmonics + 1), np.arange(n) / n)
    return np.concatenate([np.cos(arg), np.sin(arg)])


class NBeatsNet(nn.Module):
    def __init__(self, backcast_len=24, forecast_len=8, hidden=32):
        super().__init__()
        self.trend_block = BasisBlock(polynomial, backcast_len, forecast_len, hidden)
        self.seasonality_block = BasisBlock(seasonality, backcast_len, forecast_len, hidden)
        self.generic_block = GenericBlock(backcast_len, forecast_len, hidden, 6)

    def forward(self, x):
        norm = x.abs().amax(dim=1, keepdim=True)
        backcast = x / norm
        forecast = 0
        order = [self.trend_block] * 2 + [self.seasonality_block] * 2 + [self.generic_block]
        for block in order:
            b, f = block(backcast)
            backcast = backcast - b
            forecast = forecast + f
        return forecast * norm


def build():
    return NBeatsNet()


def loss(outputs, targets):
    targets = targets.to(outputs.dtype)
    denom = (outputs.abs() + targets.abs()).detach()
    return 2 * ((outputs - targets).abs() / denom).mean()
