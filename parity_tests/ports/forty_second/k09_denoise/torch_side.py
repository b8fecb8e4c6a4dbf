import torch
from torch import nn


class RecurrentSkip(nn.Module):
    """GRU with a skip connection, time first; goes on from where the last chunk of audio ended."""

    def __init__(self, width):
        super().__init__()
        self.rnn = nn.GRU(width, width)
        self.memory = None

    def forward(self, x):
        h = self.memory
        if h is None or h.shape[1] != x.shape[1] or h.dtype != x.dtype or h.device != x.device:
            h = x.new_zeros(1, x.shape[1], x.shape[2])
        y, h = self.rnn(x, h)
        self.memory = h.detach()
        return x + y


class MaskNet(nn.Module):
    def __init__(self, bins=33, width=32):
        super().__init__()
        self.cconv = nn.Conv1d(bins, width, 3, padding=2)
        self.cnorm = nn.LayerNorm(width)
        self.temporal = nn.Sequential(RecurrentSkip(width), RecurrentSkip(width))
        self.decoder = nn.Sequential(
            nn.Linear(width, 48), nn.ReLU(inplace=True), nn.Linear(48, bins), nn.Sigmoid()
        )
        self.smoother = nn.AvgPool1d(kernel_size=3, stride=1, padding=1)
        nn.init.ones_(self.decoder[2].bias)

    @staticmethod
    def analyse(spec):
        logs = (spec + 1e-4).log()
        std, mean = torch.std_mean(logs, dim=1, correction=0, keepdim=True)
        return (logs - mean) / (std + 0.1)

    def forward(self, noisy):
        frames = noisy.shape[1]
        z = self.cconv(self.analyse(noisy).mT)[..., :frames]  # (batch, width, time), causal
        z = nn.functional.elu(self.cnorm(z.permute(2, 0, 1)))  # (time, batch, width)
        gains = self.decoder(self.temporal(z)).permute(1, 2, 0)  # (batch, bins, time)
        return noisy * self.smoother(gains).mT


def _weights(bins, like):
    w = 1 / (1 + (torch.arange(bins, device=like.device) - 10).abs() / 12)
    return (w / w.mean()).to(like)


def spectral_loss(enhanced, clean):
    diff = (clean + 1e-5) ** 0.3 - (enhanced + 1e-5) ** 0.3
    cost = diff.square() * (1 + (diff > 0).to(diff))
    return (cost * _weights(cost.shape[-1], cost)).mean()


def build():
    return MaskNet()
