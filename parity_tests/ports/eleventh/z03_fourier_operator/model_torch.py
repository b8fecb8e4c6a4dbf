"""PyTorch port of the operator: few modes of few points, so the transform is two small matrices, not an FFT."""

import math

import torch
from torch import nn
from torch.nn import functional as F


class FourierMixing(nn.Module):
    def __init__(self, channels, modes):
        super().__init__()
        self.weight_re = nn.Parameter(0.08 * torch.randn(modes, channels, channels))
        self.weight_im = nn.Parameter(0.08 * torch.randn(modes, channels, channels))

    def waves(self, x):
        length, modes = x.shape[-1], len(self.weight_re)
        t = torch.arange(length, dtype=x.dtype, device=x.device)
        k = torch.arange(modes, dtype=x.dtype, device=x.device)
        angle = 2 * math.pi / length * torch.outer(k, t)
        return angle.cos(), angle.sin()

    def forward(self, x):  # (batch, channels, points)
        cos, sin = self.waves(x)
        a = torch.einsum("bct,kt->kbc", x, cos)
        b = torch.einsum("bct,kt->kbc", x, sin)
        # (a - ib)(p + iq), of which the sine's part is minus the imaginary one
        even = a @ self.weight_re + b @ self.weight_im
        odd = b @ self.weight_re - a @ self.weight_im
        # all but the constant stand for two conjugate coefficients
        share = torch.full((len(even), 1, 1), 2 / x.shape[-1], dtype=x.dtype, device=x.device)
        share[0] /= 2
        return torch.einsum("kbc,kt->bct", share * even, cos) + torch.einsum("kbc,kt->bct", share * odd, sin)


class OperatorLayer(nn.Module):
    def __init__(self, channels, modes, last=False):
        super().__init__()
        self.fourier = FourierMixing(channels, modes)
        self.bypass = nn.Conv1d(channels, channels, kernel_size=1)
        self.act = nn.Identity() if last else nn.SiLU()

    def forward(self, x):
        return self.act(self.bypass(x) + self.fourier(x))


class Net(nn.Module):
    def __init__(self, channels=16, modes=7, depth=3):
        super().__init__()
        self.encoder = nn.Conv1d(2, channels, 1)
        self.operator = nn.Sequential(*[OperatorLayer(channels, modes, i == depth - 1) for i in range(depth)])
        self.decoder = nn.Sequential(nn.Conv1d(channels, 32, 1), nn.SiLU(), nn.Conv1d(32, 1, 1))

    def forward(self, x):
        return self.decoder(self.operator(self.encoder(x.mT))).mT


def relative_l2(output, target):
    distance = F.pairwise_distance(output.flatten(1), target.flatten(1), eps=0.0)
    return (distance / torch.linalg.vector_norm(target, dim=(1, 2))).mean()
