import torch
from torch import nn
from torch.distributions import Normal


class Step(nn.Module):
    """One step of the flow: per-channel affine, coupling, reversal of the channels."""

    def __init__(self, dim, hidden):
        super().__init__()
        self.scale = nn.Parameter(torch.zeros(dim))
        self.shift = nn.Parameter(torch.zeros(dim))
        k = dim // 2
        self.trunk = nn.Sequential(nn.Linear(k, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.ReLU())
        self.gain = nn.Parameter(torch.ones(k))
        self.head = nn.Linear(hidden, 2 * k)

    def forward(self, z):
        z = torch.addcmul(self.scale.exp() * self.shift, z, self.scale.exp())
        keep, change = z.chunk(2, dim=1)
        s, t = self.head(self.trunk(keep)).chunk(2, dim=1)
        s = self.gain * torch.tanh(s)
        change = torch.addcmul(t, change, s.exp())
        return torch.cat([keep, change], 1).flip(1), self.scale.sum() + s.sum(1)


class Net(nn.Module):
    def __init__(self, dim=6, hidden=24, steps=4):
        super().__init__()
        self.steps = nn.ModuleList([Step(dim, hidden) for _ in range(steps)])

    def forward(self, x):
        total = 0.0
        for step in self.steps:
            x, ld = step(x)
            total = total + ld
        prior = Normal(torch.zeros_like(x), torch.ones_like(x))
        return (prior.log_prob(x).sum(1) + total).unsqueeze(1)


def nll(log_prob, _target):
    return log_prob.mean().neg()
