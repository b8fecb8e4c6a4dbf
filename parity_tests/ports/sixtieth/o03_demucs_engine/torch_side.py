"""Demucs for cabin noise: (batch, time) -> (batch, sources, time)."""

import torch
import torch.nn.functional as F
from torch import nn


def centre(x, length):
    extra = x.shape[-1] - length
    return x.narrow(-1, extra // 2, length)


class UNet1d(nn.Module):
    """One level of the U: encode, what lies inside, decode."""

    def __init__(self, cin, width, cout, inner, outermost=False):
        super().__init__()
        self.encode = nn.Sequential(
            nn.Conv1d(cin, width, 8, 4), nn.ReLU(), nn.Conv1d(width, 2 * width, 1), nn.GLU(dim=1)
        )
        self.inner = inner
        self.decode = nn.Sequential(
            nn.Conv1d(width, 2 * width, 3), nn.GLU(dim=1), nn.ConvTranspose1d(width, cout, 8, 4)
        )
        if not outermost:
            self.decode.append(nn.ReLU())

    def forward(self, x):
        skip = self.encode(x)
        y = self.inner(skip)
        return self.decode(y + centre(skip, y.shape[-1]))


class Recurrent(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.lstm = nn.LSTM(width, width, bidirectional=True, batch_first=True)
        for name, p in self.lstm.named_parameters():
            if name.startswith("bias_hh"):  # one bias a gate is enough
                nn.init.zeros_(p).requires_grad_(False)
        self.mix = nn.Conv1d(2 * width, width, 1)

    def forward(self, x):
        y, _ = self.lstm(x.mT)
        return self.mix(y.mT)


class Demucs(nn.Module):
    def __init__(self, sources=2, widths=(12, 20)):
        super().__init__()
        net = Recurrent(widths[-1])
        for i in reversed(range(len(widths))):
            cin = widths[i - 1] if i else 1
            net = UNet1d(cin, widths[i], widths[i - 1] if i else sources, net, outermost=i == 0)
        self.net = net

    def forward(self, mix):
        std, mean = torch.std_mean(mix, dim=-1, keepdim=True, correction=0)
        x = self.net(((mix - mean) / (std + 1e-3)).unsqueeze(1))
        return torch.addcmul(mean.unsqueeze(1), x, std.unsqueeze(1))


def magnitudes(x, n):
    window = torch.hann_window(n, dtype=x.dtype, device=x.device)
    z = torch.stft(x.flatten(0, 1), n, hop_length=n // 4, window=window, center=False, return_complex=True)
    return (torch.view_as_real(z).square().sum(-1) + 1e-8).sqrt().unflatten(0, x.shape[:2])


def loss(outputs, targets):
    stems = centre(targets.mT, outputs.shape[-1])
    total = F.l1_loss(outputs, stems)
    for n in (16, 32, 64):
        a, b = magnitudes(stems, n), magnitudes(outputs, n)
        distance = torch.linalg.matrix_norm(a - b) / torch.linalg.matrix_norm(a)
        total = total + 0.1 * (distance.mean() + F.l1_loss((b + 0.02).log(), (a + 0.02).log()))
    return total


def build():
    return Demucs()
