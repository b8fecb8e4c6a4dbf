import math

import torch
from torch import nn
from torch.nn import functional as F


class AdamW(torch.optim.AdamW):
    """AdamW whose epsilon is outside of the bias correction, as in Keras."""

    def step(self, closure=None):
        self.count = getattr(self, "count", 0) + 1
        before = [group["eps"] for group in self.param_groups]
        for group in self.param_groups:
            group["eps"] /= math.sqrt(1 - group["betas"][1] ** self.count)
        result = super().step(closure)
        for group, eps in zip(self.param_groups, before):
            group["eps"] = eps
        return result


def timestep_embedding(t, dim, max_period=1000):
    half = dim // 2
    freqs = torch.exp(
        -math.log(max_period) * torch.arange(half, dtype=torch.get_default_dtype(), device=t.device) / half
    )
    args = t[:, None] * freqs[None]
    return torch.cat([args.sin(), args.cos()], dim=-1)


class ResBlock(nn.Module):
    def __init__(self, c_in, c_out, emb, dilation=1):
        super().__init__()
        self.in_layers = nn.Sequential(
            nn.GroupNorm(4, c_in), nn.SiLU(), nn.Conv1d(c_in, c_out, 3, padding=dilation, dilation=dilation)
        )
        self.emb_layers = nn.Sequential(nn.SiLU(), nn.Linear(emb, 2 * c_out))
        self.out_norm = nn.GroupNorm(4, c_out)
        self.out_conv = nn.Conv1d(c_out, c_out, 3, padding=1)
        self.skip = nn.Conv1d(c_in, c_out, 1) if c_in != c_out else nn.Identity()

    def forward(self, x, emb):
        h = self.in_layers(x)
        scale, shift = self.emb_layers(emb)[..., None].chunk(2, dim=1)
        h = self.out_norm(h) * (1 + scale) + shift
        return self.skip(x) + self.out_conv(F.silu(h))


class Net(nn.Module):
    """Takes and gives (batch, channels, length)."""

    def __init__(self, channels=2, width=24, emb=48):
        super().__init__()
        self.time_embed = nn.Sequential(nn.Linear(32, emb), nn.SiLU(), nn.Linear(emb, emb))
        self.label_emb = nn.Embedding(6, emb)
        self.conv_in = nn.Conv1d(channels, width, 3, padding=1)
        self.block1 = ResBlock(width, width, emb)
        self.block2 = ResBlock(width, 32, emb, dilation=2)
        self.block3 = ResBlock(width + 32, width, emb)
        self.out = nn.Sequential(nn.GroupNorm(4, width), nn.SiLU(), nn.Conv1d(width, channels, 3, padding=1))

    def forward(self, noisy, step, kind):
        emb = self.time_embed(timestep_embedding(step, 32)) + self.label_emb(kind)
        a = self.block1(self.conv_in(noisy), emb)
        b = self.block2(F.avg_pool1d(a, 2), emb)
        b = F.interpolate(b, scale_factor=2)
        return self.out(self.block3(torch.cat([a, b], dim=1), emb))


def optimizer(model):
    parameters = model.parameters() if isinstance(model, nn.Module) else model
    return AdamW(parameters, lr=2e-3, betas=(0.9, 0.99), eps=1e-7, weight_decay=0.05)
