import math

import torch
from torch import nn


class SpectralConv1d(nn.Module):
    def __init__(self, width, modes):
        super().__init__()
        self.modes = modes
        self.w_re = nn.Parameter(torch.randn(width, width, modes) / width)
        self.w_im = nn.Parameter(torch.randn(width, width, modes) / width)

    def forward(self, x):  # N, width, points
        n = x.shape[-1]
        spec = torch.fft.rfft(x)
        out = spec.new_zeros(spec.shape)
        out[..., : self.modes] = torch.einsum(
            "bim,iom->bom", spec[..., : self.modes], torch.complex(self.w_re, self.w_im)
        )
        return torch.fft.irfft(out, n=n)


class Layer(nn.Module):
    def __init__(self, width, modes):
        super().__init__()
        self.spectral, self.skip = SpectralConv1d(width, modes), nn.Conv1d(width, width, 1)

    def forward(self, x):
        return self.spectral(x) + self.skip(x)


class FNO1d(nn.Module):
    def __init__(self, points=24, fields=2, width=8, modes=6, depth=3):
        super().__init__()
        angle = torch.arange(points, dtype=torch.float64) * (2 * math.pi / points)
        self.register_buffer("grid", torch.stack([angle.sin(), angle.cos()])[None], persistent=False)
        body = [nn.Conv1d(fields + 2, width, 1)]
        for i in range(depth):
            body += [Layer(width, modes)] + ([nn.GELU("tanh")] if i < depth - 1 else [])
        self.body = nn.Sequential(*body)
        self.head = nn.Sequential(nn.Conv1d(width, 16, 1), nn.GELU("tanh"), nn.Conv1d(16, fields, 1))

    def forward(self, water):
        x = water.mT
        x = torch.cat([x, self.grid.to(x.dtype).expand(len(x), -1, -1)], 1)
        return water + self.head(self.body(x)).mT


def build():
    return FNO1d()


def relative(predicted, later):
    def norm(v):
        return torch.linalg.vector_norm(v, dim=(1, 2))

    e = predicted - later
    slope_e, slope = (v.roll(-1, 1) - v for v in (e, later))
    return (norm(e) / norm(later) + 0.3 * norm(slope_e) / norm(slope)).mean()


class Adam(torch.optim.Adam):
    """torch.optim.Adam whose epsilon is that of Keras (which is added before the correction of the second moment)."""

    def __init__(self, params, lr, eps=1e-7):
        super().__init__(params, lr=lr)
        self.keras_eps, self.count = eps, 0

    def step(self, closure=None):
        self.count += 1
        for group in self.param_groups:
            group["eps"] = self.keras_eps / math.sqrt(1 - group["betas"][1] ** self.count)
        return super().step(closure)


def optimizer(parameters, start=1e-4, top=5e-3, warmup=5, decay=40, floor=0.05):
    opt = Adam(parameters, lr=top)

    def factor(step):
        if step < warmup:
            return (start + (top - start) * step / warmup) / top
        done = min(1.0, (step - warmup) / decay)
        return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * done))

    return opt, torch.optim.lr_scheduler.LambdaLR(opt, factor)
