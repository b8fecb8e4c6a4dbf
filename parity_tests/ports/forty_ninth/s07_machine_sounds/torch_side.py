import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


def mel_filters(sr=8000, n_fft=256, n_mels=20, fmin=60.0):
    mels = np.linspace(2595 * math.log10(1 + fmin / 700), 2595 * math.log10(1 + sr / 2 / 700), n_mels + 2)
    hz = 700 * (10 ** (mels / 2595) - 1)
    freqs = np.linspace(0, sr / 2, n_fft // 2 + 1)
    fb = np.zeros((n_mels, len(freqs)))
    for m in range(n_mels):
        lo, mid, hi = hz[m : m + 3]
        fb[m] = np.clip(np.minimum((freqs - lo) / (mid - lo), (hi - freqs) / (hi - mid)), 0, None)
    return torch.from_numpy(fb.astype(np.float32))


class MelDb(nn.Module):
    def __init__(self, n_fft=256, hop=128, top_db=45.0):
        super().__init__()
        self.n_fft, self.hop, self.top_db = n_fft, hop, top_db
        self.register_buffer("window", torch.hann_window(n_fft), persistent=False)
        self.register_buffer("fb", mel_filters(n_fft=n_fft), persistent=False)

    def forward(self, wave):
        spec = torch.stft(wave, self.n_fft, self.hop, window=self.window, center=False, return_complex=True)
        mel = torch.einsum("mf,bft->btm", self.fb, spec.abs().square())
        db = 10 * mel.clamp(min=1e-10).log10()
        return torch.maximum(db, db.max() - self.top_db)


class ConvBlock(nn.Sequential):
    def __init__(self, cin, cout):
        layers = []
        for c in (cin, cout):
            layers += [nn.Conv2d(c, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU()]
        super().__init__(*layers, nn.AvgPool2d(2))


class FanNet(nn.Module):
    def __init__(self, n_states=5):
        super().__init__()
        self.frontend = MelDb()
        self.features = nn.Sequential(ConvBlock(1, 8), ConvBlock(8, 16))
        self.hidden = nn.Linear(16, 32)
        self.out = nn.Linear(32, n_states)

    def forward(self, wave):
        x = self.features(self.frontend(wave).unsqueeze(1) / 20)
        x = x.mean(3)
        x = x.amax(2) + x.mean(2)
        return self.out(F.relu(self.hidden(x)))


def build():
    return FanNet()
