"""Keyword spotter on raw audio; FFT front end and separable convolutions."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

RATE = 4000
FRAME, HOP, MELS = 128, 64, 16
KEYWORDS = 6


def mel_filters():
    """Triangular mel filters as a (MELS, bins) array."""
    top = 2595.0 * np.log10(1.0 + RATE / 2 / 700.0)
    bottom = 2595.0 * np.log10(1.0 + 60.0 / 700.0)
    points = bottom + (top - bottom) * np.arange(MELS + 2) / (MELS + 1)
    hertz = 700.0 * (10.0 ** (points / 2595.0) - 1.0)
    freqs = np.linspace(0.0, RATE / 2, FRAME // 2 + 1)
    bank = np.zeros((MELS, len(freqs)))
    for m, (a, b, c) in enumerate(zip(hertz[:-2], hertz[1:-1], hertz[2:])):
        rising = (freqs >= a) & (freqs <= b)
        falling = (freqs > b) & (freqs <= c)
        bank[m, rising] = (freqs[rising] - a) / (b - a)
        bank[m, falling] = (c - freqs[falling]) / (c - b)
    return bank


class LogMel(nn.Module):
    """(B, samples) -> (B, MELS, frames), mean-normalised over time."""

    def __init__(self):
        super().__init__()
        self.bank = mel_filters()

    def forward(self, wave):
        wave = wave - 0.97 * F.pad(wave, (1, 0))[:, :-1]
        window = torch.hann_window(FRAME, dtype=wave.dtype, device=wave.device)
        frames = wave.unfold(-1, FRAME, HOP) * window
        power = torch.fft.rfft(frames).abs().square()
        bank = torch.as_tensor(self.bank, dtype=wave.dtype, device=wave.device)
        log_mel = torch.log(torch.einsum("btf,mf->bmt", power, bank) + 1e-3)
        return log_mel - log_mel.mean(dim=-1, keepdim=True)


class Separable(nn.Module):
    """Depthwise then pointwise convolution of width 3 on (B, C, T)."""

    def __init__(self, channels, dilation):
        super().__init__()
        self.pad = (dilation, dilation)
        self.depthwise = nn.Conv1d(channels, channels, 3, dilation=dilation, groups=channels, bias=False)
        self.pointwise = nn.Conv1d(channels, channels, 1)

    def forward(self, x):
        return self.pointwise(self.depthwise(F.pad(x, self.pad)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.front_end = LogMel()
        self.conv0 = nn.Conv1d(MELS, 16, 3)
        self.convs = nn.ModuleList(Separable(16, dilation) for dilation in (1, 2, 4))
        self.score = nn.Conv1d(16, 1, 1, bias=False)
        self.keyword = nn.Linear(16, KEYWORDS)

    def forward(self, wave):
        x = F.relu(self.conv0(F.pad(self.front_end(wave), (2, 0))))
        for conv in self.convs:
            x = x + F.silu(conv(x))
        weights = self.score(x).softmax(dim=-1)
        return self.keyword((weights * x).sum(dim=-1))
