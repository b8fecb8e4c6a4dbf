import torch
import torch.nn as nn
import torch.nn.functional as F


class SpectralConv(nn.Module):
    def __init__(self, c_in, c_out, modes):
        super().__init__()
        self.modes = modes
        self.weight_re = nn.Parameter(0.15 * torch.randn(c_in, c_out, modes))
        self.weight_im = nn.Parameter(0.15 * torch.randn(c_in, c_out, modes))

    def forward(self, x):
        n = x.shape[-1]
        f = torch.fft.rfft(x)[..., : self.modes]
        g = torch.einsum("bim,iom->bom", f, torch.complex(self.weight_re, self.weight_im))
        return torch.fft.irfft(F.pad(g, (0, n // 2 + 1 - self.modes)), n=n)


class FNO1d(nn.Module):
    def __init__(self, width=10, modes=6, depth=2):
        super().__init__()
        self.lift = nn.Linear(2, width)
        self.spectral = nn.ModuleList(SpectralConv(width, width, modes) for _ in range(depth))
        self.local = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(depth))
        self.project = nn.Linear(width, 14)
        self.out = nn.Linear(14, 1)

    def forward(self, x):
        h = self.lift(x).transpose(1, 2)
        for s, w in zip(self.spectral, self.local):
            h = F.gelu(s(h) + w(h))
        return self.out(F.gelu(self.project(h.transpose(1, 2))))


class ClippedSGD(torch.optim.SGD):
    def __init__(self, params, lr, momentum, clipnorm):
        super().__init__(params, lr=lr, momentum=momentum)
        self.clipnorm = clipnorm

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            torch.nn.utils.clip_grad_norm_(group["params"], self.clipnorm)
        return super().step(closure)


def optimizer(parameters):
    return ClippedSGD(parameters, lr=0.05, momentum=0.9, clipnorm=0.2)


def build():
    return FNO1d()
