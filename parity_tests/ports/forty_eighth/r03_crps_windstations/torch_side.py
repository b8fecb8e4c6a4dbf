"""Set transformer over ensemble members for station wind; censored-normal CRPS."""

import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Normal
from torch.special import ndtr


class MemberLayer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.ln_a = nn.LayerNorm(dim, eps=1e-6)
        self.mha = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.ln_b = nn.LayerNorm(dim, eps=1e-6)
        self.ff = nn.Sequential(nn.Linear(dim, 2 * dim), nn.SiLU(), nn.Linear(2 * dim, dim))

    def forward(self, x, absent):
        h = self.ln_a(x)
        x = x + self.mha(h, h, h, key_padding_mask=absent, need_weights=False)[0]
        return x + self.ff(self.ln_b(x))


class EnsembleNet(nn.Module):
    def __init__(self, features=5, stations=20, dim=32, heads=2, depth=2):
        super().__init__()
        self.sites = nn.Embedding(stations, 6)
        self.proj = nn.Linear(features, dim)
        self.gamma = nn.Linear(8, dim)
        self.beta = nn.Linear(8, dim)
        self.layers = nn.ModuleList(MemberLayer(dim, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.fc = nn.Linear(2 * dim + 8, 32)
        self.mu = nn.Linear(32, 1)
        self.sigma = nn.Linear(32, 1)

    def forward(self, members, station, season):
        absent = members[..., 0] <= -998.0
        members = members.masked_fill(absent.unsqueeze(-1), 0.0)
        n = (~absent).sum(1, keepdim=True)
        context = torch.cat([self.sites(station.long()), season], dim=-1)
        x = self.proj(members)
        x = torch.addcmul(self.beta(context).unsqueeze(1), x, 1 + self.gamma(context).unsqueeze(1))
        for layer in self.layers:
            x = layer(x, absent)
        x = self.norm(x)
        gone = absent.unsqueeze(-1)
        mean = x.masked_fill(gone, 0).sum(1) / n
        dev = (x - mean.unsqueeze(1)).masked_fill(gone, 0)
        std = (dev.square().sum(1) / n + 1e-5).sqrt()
        h = F.silu(self.fc(torch.cat([mean, std, context], dim=-1)))
        base = members[..., 0].sum(1, keepdim=True) / n
        return torch.cat([base + self.mu(h), F.softplus(self.sigma(h)) + 0.05], dim=-1)


def build():
    return EnsembleNet()


def loss(outputs, targets):
    mu, sigma = outputs.unbind(-1)
    std_normal = Normal(torch.zeros_like(mu), torch.ones_like(mu))

    def pdf(t):
        return std_normal.log_prob(t).exp()

    z = (targets.reshape(-1) - mu) / sigma
    c = -mu / sigma
    root_pi = math.sqrt(math.pi)
    normal = z * (2 * ndtr(z) - 1) + 2 * pdf(z) - 1 / root_pi
    censored = c * ndtr(c) ** 2 + 2 * pdf(c) * ndtr(c) - ndtr(math.sqrt(2) * c) / root_pi
    return (sigma * (normal - censored)).mean()
