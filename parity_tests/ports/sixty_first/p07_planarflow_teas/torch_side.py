import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Normal


def mlp(*sizes):
    mods = []
    for a, b in zip(sizes, sizes[1:]):
        mods += [nn.Linear(a, b), nn.Tanh()]
    return nn.Sequential(*mods)


class Planar(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.w = nn.Parameter(0.5 * torch.randn(dim))
        self.u = nn.Parameter(0.5 * torch.randn(dim))
        self.b = nn.Parameter(torch.zeros(1))

    def constrained_u(self):
        wu = torch.dot(self.w, self.u)
        return self.u + (F.softplus(wu) - 1 - wu) * self.w / self.w.norm()

    def forward(self, z):
        u = self.constrained_u()
        t = torch.tanh(F.linear(z, self.w[None], self.b))
        psi = (1 - t.square()) * self.w
        return z + u * t, torch.log(torch.abs(1 + psi @ u))


class FlowVAE(nn.Module):
    def __init__(self, n_channels=36, n_latent=4, n_flows=4, beta=0.5):
        super().__init__()
        self.beta = beta
        self.log_sigma = nn.Parameter(torch.full((n_channels,), -1.0))
        self.enc = mlp(n_channels, 28, 20)
        self.stats = nn.ModuleDict({"mu": nn.Linear(20, n_latent), "logvar": nn.Linear(20, n_latent)})
        self.flow = nn.ModuleList([Planar(n_latent) for _ in range(n_flows)])
        self.dec = nn.Sequential(*mlp(n_latent, 20, 28), nn.Linear(28, n_channels))

    def posterior(self, field):
        h = self.enc(field)
        return Normal(self.stats["mu"](h), torch.exp(self.stats["logvar"](h) / 2))

    def transport(self, z):
        total = 0
        for flow in self.flow:
            z, ld = flow(z)
            total = total + ld
        return z, total

    def forward(self, field, noise):
        q = self.posterior(field)
        z, _ = self.transport(q.loc + q.scale * noise)
        return self.dec(z)


def step(model, batch):
    x, lab = batch
    q = model.posterior(x["field"])
    z0 = q.loc + q.scale * x["noise"]
    z, log_det = model.transport(z0)
    nll = -Normal(model.dec(z), model.log_sigma.exp()).log_prob(lab).sum(1)
    prior = Normal(torch.zeros_like(z), torch.ones_like(z))
    kl = (q.log_prob(z0) - prior.log_prob(z0)).sum(1) - log_det
    return (nll + model.beta * kl).mean() / lab.shape[1]


def build():
    return FlowVAE()
