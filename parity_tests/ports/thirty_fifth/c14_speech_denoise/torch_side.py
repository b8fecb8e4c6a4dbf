"""Waveform denoiser, PyTorch."""

import torch
import torch.nn.functional as F
from torch import nn


class Denoiser(nn.Module):
    def __init__(self, filters=16, kernel=8, hop=4, units=12):
        super().__init__()
        pad = (kernel - hop) // 2
        self.encoder = nn.Conv1d(1, filters, kernel, stride=hop, padding=pad, bias=False)
        self.norm = nn.LayerNorm(filters, eps=2**-10)
        self.first = nn.Parameter(torch.randn(1, units) * 0.05)
        self.gru = nn.GRU(filters, units)
        self.mask = nn.Linear(units, filters)
        self.decoder = nn.ConvTranspose1d(filters, 1, kernel, stride=hop, padding=pad, bias=False)

    def forward(self, noisy):
        feats = F.relu(self.encoder(noisy.unsqueeze(1)))  # (B, C, T)
        x = self.norm(feats.permute(2, 0, 1))  # (T, B, C): the GRU is time-major
        h0 = self.first.expand(x.shape[1], -1).unsqueeze(0).contiguous()
        x, _ = self.gru(x, h0)
        mask = torch.sigmoid(self.mask(x)).permute(1, 2, 0)
        return self.decoder(feats * mask).squeeze(1)


def build():
    return Denoiser()


def si_snr(output, target, eps=1e-6):
    t = target - target.mean(-1, keepdim=True)
    p = output - output.mean(-1, keepdim=True)
    scale = torch.linalg.vecdot(p, t) / (t.square().sum(-1) + eps)
    projected = scale.unsqueeze(-1) * t
    noise = p - projected
    return -10 * torch.log10((projected.square().sum(-1) + eps) / (noise.square().sum(-1) + eps)).mean()


class ClippedSGD(torch.optim.SGD):
    """Clips the global norm before the step, without the 1e-6 of clip_grad_norm_."""

    def __init__(self, params, clip, **kw):
        super().__init__(params, **kw)
        self.clip = clip

    @torch.no_grad()
    def step(self, closure=None):
        grads = [p.grad for g in self.param_groups for p in g["params"] if p.grad is not None]
        norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in grads]))
        if norm > self.clip:
            for g in grads:
                g.mul_(self.clip / norm)
        return super().step(closure)


def optimizer(params):
    return ClippedSGD(params, clip=1.0, lr=0.0625, momentum=0.875)
