import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


def hz_to_mel(f):
    return 2595 * np.log10(1 + f / 700)


def mel_filterbank(n_freqs, n_mels, sample_rate, f_min):
    points = np.linspace(hz_to_mel(f_min), hz_to_mel(sample_rate / 2), n_mels + 2)
    freqs = hz_to_mel(np.linspace(0, sample_rate / 2, n_freqs))
    slopes = points[None, :] - freqs[:, None]
    widths = np.diff(points)
    rising, falling = -slopes[:, :-2] / widths[:-1], slopes[:, 2:] / widths[1:]
    return torch.from_numpy(np.minimum(rising, falling).clip(min=0))


class MelFrontend(nn.Module):
    def __init__(self, n_fft=128, hop=64, n_mels=16, sample_rate=4000):
        super().__init__()
        self.n_fft, self.hop = n_fft, hop
        self.register_buffer(
            "window", torch.hann_window(n_fft, periodic=False, dtype=torch.float64), persistent=False
        )
        self.register_buffer(
            "fb", mel_filterbank(n_fft // 2 + 1, n_mels, sample_rate, 40.0), persistent=False
        )

    def forward(self, x):
        frames = x.unfold(-1, self.n_fft, self.hop) * self.window.to(x.dtype)
        spec = torch.fft.rfft(frames)
        return (spec.real.square() + spec.imag.square()) @ self.fb.to(x.dtype)


class PCEN(nn.Module):
    def __init__(self, n_mels, eps=1e-3):
        super().__init__()
        self.eps = eps
        self.s = nn.Parameter(torch.full((n_mels,), -1.5))
        self.alpha = nn.Parameter(torch.full((n_mels,), 0.9))
        self.delta = nn.Parameter(torch.full((n_mels,), 0.7))
        self.r = nn.Parameter(torch.full((n_mels,), 0.7))

    def forward(self, e):
        s = self.s.sigmoid()
        m, smoothed = torch.zeros_like(e[:, 0]), []
        for frame in e.unbind(1):
            m = (1 - s) * m + s * frame
            smoothed.append(m)
        m = torch.stack(smoothed, dim=1)
        delta, r = self.delta.exp(), self.r.sigmoid()
        return (e / (m + self.eps) ** self.alpha + delta) ** r - delta**r


class Net(nn.Module):
    def __init__(self, n_classes=4):
        super().__init__()
        self.frontend = nn.Sequential(MelFrontend(), PCEN(16))
        self.cnn = nn.Sequential(
            nn.Conv2d(1, 8, (5, 3), padding=(2, 1)),
            nn.ReLU(),
            nn.MaxPool2d((1, 2)),
            nn.Conv2d(8, 16, 3, padding=1),
            nn.ReLU(),
        )
        self.dropout = nn.Dropout(0.1)
        self.fc = nn.Linear(16, n_classes)

    def forward(self, x):
        x = self.cnn(self.frontend(x).unsqueeze(1))
        return self.fc(self.dropout(x.mean(dim=(-2, -1))))


def loss(output, target, gamma=2.0):
    ce = F.cross_entropy(output, target.view(-1).long(), reduction="none")
    with torch.no_grad():
        focus = (1 - torch.exp(-ce)) ** gamma
    return (focus * ce).mean()
