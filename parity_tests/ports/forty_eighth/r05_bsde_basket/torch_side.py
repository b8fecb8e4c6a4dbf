"""Backward stochastic differential equation of a max-call spread under two interest rates."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class Market:
    assets: int = 10
    steps: int = 8
    maturity: float = 0.5
    spot: float = 100.0
    mu: float = 0.06
    vol: float = 0.2
    r_lend: float = 0.04
    r_borrow: float = 0.06

    @property
    def dt(self):
        return self.maturity / self.steps


def hedge_net(assets, hidden=20):
    return nn.Sequential(
        nn.LayerNorm(assets, eps=1e-3),
        nn.Linear(assets, hidden, bias=False),
        nn.LayerNorm(hidden, eps=1e-3),
        nn.ReLU(),
        nn.Linear(hidden, hidden, bias=False),
        nn.LayerNorm(hidden, eps=1e-3),
        nn.ReLU(),
        nn.Linear(hidden, assets),
    )


class BSDESolver(nn.Module):
    def __init__(self, market=Market()):
        super().__init__()
        self.market = market
        self.z0 = nn.Parameter(torch.empty(market.assets).uniform_(-0.1, 0.1))
        self.y0 = nn.Parameter(torch.tensor([18.0]))
        self.hedges = nn.ModuleList(hedge_net(market.assets) for _ in range(market.steps - 1))

    def returns(self, dw):
        """Relative prices at the ends of the steps but the last."""
        m = self.market
        t = m.dt * torch.arange(1, m.steps, device=dw.device)
        growth = (m.mu - 0.5 * m.vol**2) * t
        return torch.expm1(growth[:, None] + m.vol * dw[:, :-1].cumsum(dim=1))

    def forward(self, noise):
        m = self.market
        dw = noise * m.dt**0.5
        controls = [self.z0.expand(len(noise), -1)]
        controls += [net(r) / m.assets for net, r in zip(self.hedges, self.returns(dw).unbind(1))]
        z = torch.stack(controls, dim=1)
        gains = torch.linalg.vecdot(z, dw)
        stock = z.sum(-1) / m.vol
        y = self.y0
        for k in range(m.steps):
            drift = m.r_lend * y + (m.mu - m.r_lend) * stock[:, k]
            drift = drift - (m.r_borrow - m.r_lend) * F.relu(stock[:, k] - y)
            y = y + m.dt * drift + gains[:, k]
        return y.unsqueeze(-1)


def build():
    return BSDESolver()


def loss(outputs, targets):
    return 2 * F.huber_loss(outputs.squeeze(-1), targets.reshape(-1).to(outputs.dtype), delta=50.0)
