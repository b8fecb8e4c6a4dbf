from __future__ import annotations

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor


class _LowerBound(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, bound: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.bound = bound
        return x.clamp(min=bound)

    @staticmethod
    def backward(ctx, g: Tensor):
        (x,) = ctx.saved_tensors
        blocked = (x < ctx.bound) & (g >= 0)
        return g.masked_fill(blocked, 0.0), None


class NonNegative(nn.Module):
    """holds sqrt(value + pedestal)"""

    PEDESTAL = 2.0**-36

    def __init__(self, value: Tensor, minimum: float = 0.0):
        super().__init__()
        self.raw = nn.Parameter((value + self.PEDESTAL).sqrt())
        self.bound = math.sqrt(minimum + self.PEDESTAL)

    def forward(self) -> Tensor:
        return _LowerBound.apply(self.raw, self.bound).square() - self.PEDESTAL


class DivisiveNorm(nn.Module):
    def __init__(self, c: int):
        super().__init__()
        self.mix = NonNegative(torch.full((c, c), 0.005) + 0.1 * torch.eye(c))
        self.floor = NonNegative(torch.ones(c), 1e-6)

    def denominator(self, x: Tensor) -> Tensor:
        e = torch.tensordot(self.mix(), x * x, dims=([1], [1])).movedim(0, 1)
        return (e + self.floor().view(-1, 1, 1)).sqrt()

    def forward(self, x: Tensor) -> Tensor:
        return x / self.denominator(x)


class InverseDivisiveNorm(DivisiveNorm):
    def forward(self, x: Tensor) -> Tensor:
        return x * self.denominator(x)


class LogisticPrior(nn.Module):
    def __init__(self, c: int):
        super().__init__()
        self.mu = nn.Parameter(torch.zeros(c, 1, 1))
        self.log_s = nn.Parameter(torch.full((c, 1, 1), -0.3))

    def bits(self, y: Tensor) -> Tensor:
        z = y - self.mu
        half = torch.tensor([0.5, -0.5], dtype=y.dtype, device=y.device).view(2, 1, 1, 1, 1)
        hi, lo = torch.sigmoid((z + half) / self.log_s.exp()).unbind(0)
        return -torch.log2((hi - lo).clamp_min(1e-9)).flatten(1).sum(1)


class Codec(nn.Module):
    def __init__(self, ch: int = 14, latent: int = 10):
        super().__init__()
        self.decode = nn.ModuleDict(
            dict(
                up=nn.ConvTranspose2d(latent, ch, 5, stride=2, padding=1),
                norm=InverseDivisiveNorm(ch),
                out=nn.Conv2d(ch, 12, 3, padding=1),
            )
        )
        self.encode = nn.ModuleDict(
            dict(
                down1=nn.Conv2d(3, ch, 5, stride=2),
                norm=DivisiveNorm(ch),
                down2=nn.Conv2d(ch, latent, 5, stride=2),
            )
        )
        self.prior = LogisticPrior(latent)

    @staticmethod
    def blocks(x: Tensor, r: int = 2) -> Tensor:
        """(B, r*r*C, H, W) -> (B, rH, rW, C)"""
        b, c, h, w = x.shape
        x = x.view(b, r, r, c // r**2, h, w)
        return x.permute(0, 4, 1, 5, 2, 3).reshape(b, h * r, w * r, c // r**2)

    def forward(self, image: Tensor, dither: Tensor) -> dict[str, Tensor]:
        b, h, w, _ = image.shape
        e, d = self.encode, self.decode
        x = e["down1"](F.pad(image.permute(0, 3, 1, 2) - 0.5, (1, 2, 1, 2)))
        y = e["down2"](F.pad(e["norm"](x), (1, 2, 1, 2))) + dither.permute(0, 3, 1, 2)
        up = d["up"](y)[:, :, :-1, :-1]
        x = self.blocks(d["out"](d["norm"](up)))
        return {"recon": x + 0.5, "bits": self.prior.bits(y) / (h * w)}


def distortion(recon: Tensor, image: Tensor, lmbda: float = 0.004) -> Tensor:
    return lmbda * F.mse_loss(255 * recon, 255 * image)


def rate(bits: Tensor, _: Tensor) -> Tensor:
    return bits.mean()


def build() -> nn.Module:
    return Codec()
