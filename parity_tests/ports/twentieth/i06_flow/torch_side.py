import torch
from torch import distributions, nn


class Flow(nn.Module):
    def __init__(self, size=6, hidden=24, couplings=4):
        super().__init__()
        self.nets = nn.ModuleList(
            nn.Sequential(nn.Linear(size, hidden), nn.Tanh(), nn.Linear(hidden, 2 * size))
            for _ in range(couplings)
        )
        self.limits = nn.ParameterList(nn.Parameter(torch.ones(size)) for _ in range(couplings))
        self.register_buffer("even", torch.arange(size) % 2 == 0)

    def forward(self, x):
        logs = []
        keep = self.even
        for net, limit in zip(self.nets, self.limits):
            s, t = net(x.masked_fill(~keep, 0)).chunk(2, dim=1)
            s = s.tanh().mul(limit)
            x = torch.where(keep, x, x * s.exp() + t)
            logs.append(torch.where(keep, 0, s))
            keep = ~keep
        return torch.cat([x, torch.stack(logs).sum((0, 2)).unsqueeze(1)], 1)


def loss(output, target):
    z, determinant = output.split([6, 1], dim=1)
    normal = distributions.Independent(distributions.Normal(torch.zeros_like(z), torch.ones_like(z)), 1)
    return -(normal.log_prob(z) + determinant.squeeze(1)).mean()
