import torch
import torch.nn as nn
import torch.nn.functional as F


class Chomp(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.n = n

    def forward(self, x):
        return x[..., : -self.n]


def causal(c_in, c_out, d, bias=True):
    return [nn.Conv1d(c_in, c_out, 3, padding=2 * d, dilation=d, bias=bias), Chomp(2 * d)]


class ChannelNorm(nn.LayerNorm):
    def forward(self, x):
        return super().forward(x.mT).mT


class TemporalBlock(nn.Module):
    def __init__(self, c_in, c, d):
        super().__init__()
        self.net = nn.Sequential(
            *causal(c_in, c, d),
            nn.PReLU(c, init=0.2),
            nn.Dropout1d(0.1),
            *causal(c, c, d, bias=False),
            ChannelNorm(c, eps=1e-3),
        )
        self.res = None if c_in == c else nn.Conv1d(c_in, c, 1)

    def forward(self, x):
        r = x if self.res is None else self.res(x)
        return F.gelu(r + self.net(x), approximate="tanh")


class TCNAutoencoder(nn.Module):
    def __init__(self, channels=4, width=12, code=5):
        super().__init__()
        self.affine_weight = nn.Parameter(torch.ones(channels, 1))
        self.affine_bias = nn.Parameter(torch.zeros(channels, 1))
        self.encoder = nn.Sequential(
            TemporalBlock(channels, width, 1),
            TemporalBlock(width, width, 2),
            TemporalBlock(width, width, 4),
            nn.AvgPool1d(4),
            nn.Conv1d(width, code, 1),
            nn.Tanh(),
        )
        self.decoder = nn.Sequential(
            nn.ConvTranspose1d(code, width, 4, stride=4),
            TemporalBlock(width, width, 4),
            TemporalBlock(width, width, 1),
            nn.Conv1d(width, channels, 1),
        )

    def forward(self, series):
        x = series.transpose(1, 2)
        with torch.no_grad():
            var, mean = torch.var_mean(x, dim=-1, keepdim=True, correction=0)
            std = (var + 1e-5).sqrt()
        y = torch.addcmul(self.affine_bias, (x - mean) / std, self.affine_weight)
        y = self.decoder(self.encoder(y))
        y = (y - self.affine_bias) / (self.affine_weight + 1e-5)
        return torch.addcmul(mean, y, std).transpose(1, 2)


def build():
    return TCNAutoencoder()


_ramp = torch.linspace(0.5, 1.5, 32).unsqueeze(1)
_units = torch.tensor([1, 6, 0.3, 3])


def loss(pred, target):
    err = (pred - target) / _units.to(pred)
    logcosh = torch.logaddexp(err, -err) - torch.log(torch.tensor(2.0))
    return (logcosh * _ramp.to(pred)).mean() + 0.25 * err.diff(dim=1).abs().mean()
