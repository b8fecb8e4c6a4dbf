import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def triangular_bank(n_bins, n_bands):
    pts = np.linspace(0.0, 1.0, n_bands + 2) ** 1.5 * (n_bins - 1)
    f = np.arange(n_bins)
    bank = []
    for lo, mid, hi in zip(pts[:-2], pts[1:-1], pts[2:]):
        tri = np.minimum((f - lo) / max(mid - lo, 1e-3), (hi - f) / max(hi - mid, 1e-3))
        bank.append(np.clip(tri, 0.0, None) + 0.02)
    return torch.from_numpy(np.stack(bank))  # bands x bins


class FrontEnd(nn.Module):
    def __init__(self, n_fft=32, hop=16, n_bands=10):
        super().__init__()
        self.n_fft, self.hop = n_fft, hop
        self.register_buffer("window", torch.hann_window(n_fft, dtype=torch.float64))
        self.register_buffer("bank", triangular_bank(n_fft // 2 + 1, n_bands))

    def forward(self, wav):
        spec = torch.stft(
            wav, self.n_fft, self.hop, window=self.window.to(wav.dtype), center=False, return_complex=True
        )
        power = spec.real.square() + spec.imag.square()  # B bins frames
        feats = torch.log(self.bank.to(wav.dtype) @ power + 1e-3)
        return feats - feats.mean(dim=-1, keepdim=True)


class DSConv(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.depthwise = nn.Conv1d(cin, cin, 3, padding=1, groups=cin, bias=False)
        self.pointwise = nn.Conv1d(cin, cout, 1, bias=False)
        self.bn = nn.BatchNorm1d(cout, eps=1e-3, momentum=0.1)

    def forward(self, x):
        return F.relu(self.bn(self.pointwise(self.depthwise(x))))


class KeywordNet(nn.Module):
    def __init__(self, n_classes=5):
        super().__init__()
        self.frontend = FrontEnd()
        self.conv = nn.Conv1d(10, 16, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm1d(16, eps=1e-3, momentum=0.1)
        self.blocks = nn.Sequential(DSConv(16, 20), DSConv(20, 24))
        self.fc = nn.Linear(24, n_classes)

    def forward(self, wav):
        x = F.relu(self.bn(self.conv(self.frontend(wav))))
        return self.fc(self.blocks(x).mean(-1))


def build():
    return KeywordNet()


CLASS_WEIGHTS = [0.4, 1.0, 1.6, 1.0, 2.2]


def loss(outputs, targets):
    weight = torch.tensor(CLASS_WEIGHTS, dtype=outputs.dtype, device=outputs.device)
    return F.cross_entropy(outputs, targets.long().view(-1), weight=weight)
