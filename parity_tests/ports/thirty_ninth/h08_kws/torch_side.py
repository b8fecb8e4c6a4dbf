import math

import torch
from torch import nn


def hz2mel(f):
    return 2595.0 * torch.log10(1.0 + f / 700.0)


class FrontEnd(nn.Module):
    def __init__(self, sr=8000, n_fft=256, hop=128, n_mels=24, fmin=60.0, fmax=3800.0):
        super().__init__()
        self.n_fft, self.hop = n_fft, hop
        f = hz2mel(torch.linspace(0, sr / 2, n_fft // 2 + 1, dtype=torch.float64))
        lo, hi = (2595.0 * math.log10(1 + v / 700.0) for v in (fmin, fmax))
        pts = torch.linspace(lo, hi, n_mels + 2, dtype=torch.float64)
        d = pts.diff()
        up = (f[None] - pts[:-2, None]) / d[:-1, None]
        down = (pts[2:, None] - f[None]) / d[1:, None]
        fb = torch.minimum(up, down).clamp(min=0)
        self.register_buffer("fb", fb.float(), persistent=False)  # (mels, bins)
        self.register_buffer("window", torch.hann_window(n_fft, periodic=False), persistent=False)

    def forward(self, wave):
        spec = torch.stft(
            wave, self.n_fft, self.hop, window=self.window, center=False, return_complex=True
        ).abs()
        x = torch.log(torch.einsum("mf,bft->btm", self.fb, spec) + 1e-2)
        return x.sub(x.mean(1, keepdim=True)).unsqueeze(1)


def cbr(cin, cout, k, **kw):
    return nn.Sequential(
        nn.Conv2d(cin, cout, k, bias=False, **kw),
        nn.BatchNorm2d(cout, eps=1e-3, momentum=0.01),
        nn.ReLU(inplace=True),
    )


class KWS(nn.Module):
    def __init__(self, n_classes=5):
        super().__init__()
        self.head = nn.Sequential(nn.Linear(48, 32), nn.ReLU(), nn.Linear(32, n_classes))
        self.front = FrontEnd()
        self.trunk = nn.Sequential(
            cbr(1, 12, (5, 3), padding=(2, 1)),
            cbr(12, 12, 3, stride=2, padding=1, groups=12),
            cbr(12, 16, 1),
            cbr(16, 16, 3, padding=1, groups=16),
            cbr(16, 24, 1),
        )

    def forward(self, wave):
        x = self.trunk(self.front(wave)).flatten(2)
        return self.head(torch.cat([x.amax(-1), x.mean(-1)], dim=1))


def build():
    return KWS()
