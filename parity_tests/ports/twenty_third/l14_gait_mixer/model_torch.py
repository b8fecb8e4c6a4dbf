"""Gait classes from shoe sensors, PyTorch; input (N, 12, 7)."""

import torch
import torch.nn.functional as F
from torch import nn


class LayerScale(nn.Module):
    def __init__(self, dim, init=0.3):
        super().__init__()
        self.scale = nn.Parameter(torch.full((dim,), init))

    def forward(self, x):
        return self.scale * x


class TimeMLP(nn.Module):
    """MLP along the time axis of (N, T, C), without moving axes."""

    def __init__(self, steps, hidden):
        super().__init__()
        self.fc1 = nn.Linear(steps, hidden)
        self.fc2 = nn.Linear(hidden, steps)

    def forward(self, x):
        h = torch.einsum("ht,ntc->nhc", self.fc1.weight, x) + self.fc1.bias[:, None]
        return self.fc2.weight @ F.gelu(h) + self.fc2.bias[:, None]


class MixerBlock(nn.Module):
    def __init__(self, steps, dim):
        super().__init__()
        self.norm_t = nn.LayerNorm(dim)
        self.time = TimeMLP(steps, 16)
        self.scale_t = LayerScale(dim)
        self.norm_c = nn.LayerNorm(dim)
        self.channel = nn.Sequential(nn.Linear(dim, 30), nn.GELU(), nn.Linear(30, dim))
        self.scale_c = LayerScale(dim)

    def forward(self, x):
        x = x + self.scale_t(self.time(self.norm_t(x)))
        return x + self.scale_c(self.channel(self.norm_c(x)))


class GaitMixer(nn.Module):
    def __init__(self, steps=12, sensors=7, dim=20, n_gaits=4):
        super().__init__()
        self.embed = nn.Linear(sensors, dim)
        self.mix1 = MixerBlock(steps, dim)
        self.mix2 = MixerBlock(steps, dim)
        self.norm = nn.LayerNorm(dim)
        self.gait = nn.Linear(dim, n_gaits)

    def forward(self, stride):
        x = self.norm(self.mix2(self.mix1(self.embed(stride))))
        pooled = torch.einsum("ntc,ntc->nc", x.softmax(dim=1), x)
        return self.gait(pooled)


class DecoupledSGD(torch.optim.SGD):
    """SGD whose weight decay shrinks the weights before the step, as AdamW's does."""

    def __init__(self, groups, lr, momentum):
        super().__init__(groups, lr=lr, momentum=momentum, nesterov=True)

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                p.mul_(1 - group["lr"] * group["decoupled_decay"])
        return super().step(closure)


def decays(name, param):
    """Weights are decayed, biases and norm parameters are not."""
    return param.ndim > 1


def make(model):
    groups = {True: [], False: []}
    for name, param in model.named_parameters():
        groups[decays(name, param)].append(param)
    return DecoupledSGD(
        [
            {"params": groups[True], "decoupled_decay": 0.03125},
            {"params": groups[False], "decoupled_decay": 0.0},
        ],
        lr=0.0625,
        momentum=0.75,
    )
