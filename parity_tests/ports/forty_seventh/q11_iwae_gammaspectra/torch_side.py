"""IWAE with a hierarchy of two latent layers and Poisson likelihood."""

import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Independent, Normal, Poisson


class SameConv(nn.Conv1d):
    """Stride two, kernel five, and half the length comes out."""

    def forward(self, x):
        return super().forward(F.pad(x, (1, 2)))


class NormalParams(nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.loc = nn.Linear(d_in, d_out)
        self.logscale = nn.Linear(d_in, d_out)

    def forward(self, h):
        scale = (3 * torch.tanh(self.logscale(h) / 3)).exp()
        return Independent(Normal(self.loc(h), scale, validate_args=False), 1, validate_args=False)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1 = SameConv(1, 12, 5, stride=2)
        self.c2 = SameConv(12, 16, 5, stride=2)
        self.fc = nn.Linear(256, 32)

    def forward(self, x):
        h = F.elu(self.c2(F.elu(self.c1(x.unsqueeze(1)))))
        return F.elu(self.fc(h.mT.flatten(1)))


class Decoder(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.fc = nn.Linear(d, 192)
        self.t1 = nn.ConvTranspose1d(12, 12, 4, stride=2, padding=1)
        self.t2 = nn.ConvTranspose1d(12, 1, 4, stride=2, padding=1)

    def forward(self, z):
        h = F.elu(self.fc(z)).unflatten(-1, (16, 12))
        lead = h.shape[:-2]
        h = h.flatten(0, -3).mT
        return F.softplus(self.t2(F.elu(self.t1(h)))).squeeze(1).unflatten(0, lead)


class IWAE(nn.Module):
    def __init__(self, d1=8, d2=4, hidden=24):
        super().__init__()
        self.dec = Decoder(d1)
        self.enc = Encoder()
        self.q_z1 = NormalParams(32, d1)
        self.q_z2_net = nn.Sequential(nn.Linear(d1, hidden), nn.ELU(), NormalParams(hidden, d2))
        self.p_z1_net = nn.Sequential(nn.Linear(d2, hidden), nn.ELU(), NormalParams(hidden, d1))

    def particles(self, eps_low, eps_top, live_time, spectrum):
        """Samples first: (samples, batch, ...)."""
        eps1, eps2 = eps_low.transpose(0, 1), eps_top.transpose(0, 1)
        q1 = self.q_z1(self.enc(spectrum))
        z1 = q1.mean + q1.stddev * eps1
        q2 = self.q_z2_net(z1)
        z2 = q2.mean + q2.stddev * eps2
        p1 = self.p_z1_net(z2)
        log_p2 = -0.5 * (z2.square() + math.log(2 * math.pi)).sum(-1)
        log_w = p1.log_prob(z1) + log_p2 - q1.log_prob(z1) - q2.log_prob(z2)
        return self.dec(z1) * live_time + 1e-3, log_w

    def forward(self, eps_low, eps_top, live_time, spectrum):
        rate, _ = self.particles(eps_low, eps_top, live_time, spectrum)
        return rate.mean(0)


def step(model, batch):
    inputs, counts = batch
    rate, log_w = model.particles(**inputs) if isinstance(inputs, dict) else model.particles(*inputs)
    log_w = log_w + Poisson(rate, validate_args=False).log_prob(counts).sum(-1)
    elbo = torch.logsumexp(log_w, dim=0) - math.log(len(log_w))
    return elbo.mean().neg()


def build():
    return IWAE()
