"""LFADS for co-smoothing."""

import math

import torch
import torch.nn.functional as F
from torch import nn


class UnitLinear(nn.Linear):
    def __init__(self, d_in, d_out):
        super().__init__(d_in, d_out, bias=False)

    def forward(self, x):
        return F.linear(x, F.normalize(self.weight))


class LFADS(nn.Module):
    def __init__(self, seen=20, neurons=26, enc=16, latent=8, ctrl=3, gen=24, factors=6):
        super().__init__()
        self.read_in = nn.Sequential(nn.Linear(seen, seen), nn.Tanh())
        self.bigru = nn.GRU(seen, enc, batch_first=True, bidirectional=True)
        self.to_mu = nn.Linear(2 * enc, latent)
        self.to_logvar = nn.Linear(2 * enc, latent)
        self.to_u = nn.Linear(2 * enc, ctrl)
        self.to_g0 = nn.Linear(latent, gen)
        self.dynamics = nn.GRU(ctrl, gen, batch_first=True)
        self.read_out = nn.Sequential(UnitLinear(gen, factors), nn.Linear(factors, neurons))

    def forward(self, spikes, eps):
        enc, h_n = self.bigru(self.read_in(spikes.log1p()))
        h = torch.cat([h_n[0], h_n[1]], dim=-1)
        mu, logvar = self.to_mu(h), self.to_logvar(h)
        g0 = torch.tanh(self.to_g0(torch.addcmul(mu, torch.exp(0.5 * logvar), eps)))
        u = self.to_u(enc)
        g, _ = self.dynamics(u, g0.unsqueeze(0))
        return self.read_out(g), mu, logvar, u


def gaussian_kl(mu, logvar, prior_var=0.1):
    var = logvar.exp()
    return 0.5 * (math.log(prior_var) - logvar + var / prior_var + mu.square() - 1)


def step(model, batch, beta=0.05, smooth=0.1):
    inputs, counts = batch
    if isinstance(inputs, dict):
        inputs = (inputs["spikes"], inputs["eps"])
    log_rates, mu, logvar, u = model(*inputs)
    nll = F.poisson_nll_loss(log_rates, counts.to(log_rates.dtype))
    kl = gaussian_kl(mu, logvar).mean()
    return nll + beta * kl + smooth * u.diff(dim=1).square().mean()


def build():
    return LFADS()
