import torch
from torch import nn
from torch.distributions import Normal

ORDER = [3, 0, 4, 2, 1]


class Coupling(nn.Module):
    def __init__(self, keep=2, dim=5, hidden=20):
        super().__init__()
        self.sizes = [keep, dim - keep]
        self.net = nn.Sequential(nn.Linear(keep, hidden), nn.Tanh(), nn.Linear(hidden, 2 * (dim - keep)))
        self.bound = nn.Parameter(torch.ones(dim - keep))

    def forward(self, x):
        a, b = x.split(self.sizes, dim=1)
        s, t = self.net(a).chunk(2, dim=1)
        s = self.bound * s.tanh()
        b = (b + t) * s.exp()
        y = torch.empty_like(x)
        y[:, ORDER] = torch.cat([a, b], dim=1)
        return y, s.sum(dim=1)


class Net(nn.Module):
    def __init__(self, depth=4):
        super().__init__()
        self.couplings = nn.ModuleList(Coupling() for _ in range(depth))

    def forward(self, x):
        total = x.new_zeros(len(x))
        for c in self.couplings:
            x, logdet = c(x)
            total = total + logdet
        return Normal(0.0, 1.0).log_prob(x).sum(dim=1) + total


def step(model, batch):
    return model(batch).mean().neg()
