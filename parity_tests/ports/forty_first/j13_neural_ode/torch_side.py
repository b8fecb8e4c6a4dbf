import math
from functools import partial

import torch
from torch import nn


class Dynamics(nn.Module):
    def __init__(self, n_latent, n_hidden):
        super().__init__()
        self.register_buffer("omega", 2 * math.pi / torch.tensor([1.0, 1.5, 3.0]))
        self.net = nn.Sequential(
            nn.Linear(n_latent + 6, n_hidden), nn.Tanh(), nn.Linear(n_hidden, n_hidden), nn.Tanh()
        )
        self.time_gate = nn.Sequential(nn.Linear(6, n_hidden), nn.Sigmoid())
        self.readout = nn.Linear(n_hidden, n_latent)

    def features(self, t, like):
        phase = self.omega * t
        return torch.cat((phase.sin(), phase.cos())).expand(*like.shape[:-1], -1)

    def forward(self, t, z):
        phi = self.features(t, z)
        return self.readout(self.net(torch.cat((z, phi), dim=-1)) * self.time_gate(phi))


def rk4(f, t, z, h):
    f = partial(f, t)
    a = f(z)
    b = f(z + a * (h / 2))
    c = f(z + b * (h / 2))
    d = f(z + c * h)
    return z + (a + 2 * (b + c) + d) * (h / 6)


class NeuralODE(nn.Module):
    def __init__(self, steps=12, h=0.25, latent=6):
        super().__init__()
        self.steps, self.h = steps, h
        self.dynamics = Dynamics(latent, 20)
        self.encoder = nn.Sequential(nn.Linear(4, 16), nn.Softplus(), nn.Linear(16, latent))
        self.decoder = nn.Sequential(nn.Linear(latent, 12), nn.LeakyReLU(0.2), nn.Linear(12, 2))

    def forward(self, start, par):
        z = self.encoder(torch.hstack((start, par)))
        track = []
        for i in range(self.steps):
            z = rk4(self.dynamics, i * self.h, z, self.h)
            track.append(self.decoder(z))
        return torch.stack(track, dim=-2)


build = NeuralODE


def loss(pred, track):
    value, there = track[..., :2], track[..., 2:] > 0.5
    err = torch.where(there, pred - value, 0.0).square().flatten(1).sum(1)
    return torch.mean(err / there.flatten(1).sum(1))


class ClippedSGD(torch.optim.SGD):
    def __init__(self, params, max_norm, **kw):
        super().__init__(params, **kw)
        self.max_norm = max_norm

    @torch.no_grad()
    def step(self, closure=None):
        params = [p for g in self.param_groups for p in g["params"] if p.grad is not None]
        nn.utils.clip_grad_norm_(params, self.max_norm)
        return super().step(closure)


def optimizer(params):
    return ClippedSGD(params, max_norm=0.1, lr=0.1, momentum=0.8)
