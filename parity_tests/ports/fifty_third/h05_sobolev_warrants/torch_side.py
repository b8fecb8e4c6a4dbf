import torch
import torch.nn.functional as F
from torch import nn

PAYOFF_MEAN, PAYOFF_STD = 9.3, 9.9
INV_DELTA_RMS = (3.9, 4.8, 3.9, 8.1)


class WarrantNet(nn.Module):
    def __init__(self, width=32, depth=2):
        super().__init__()
        self.register_buffer("loc", torch.tensor([100.0, 82.0, 121.0, 64.0]))
        self.register_buffer("scale", torch.tensor([18.0, 15.5, 26.0, 13.0]))
        self.linear_part = nn.Linear(4, 1, bias=False)
        self.inp = nn.Linear(4, width)
        self.mid = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.out = nn.Linear(width, 1)

    def forward(self, spots):
        x = (spots - self.loc) / self.scale
        h = F.softplus(self.inp(x))
        for layer in self.mid:
            h = torch.lerp(h, F.softplus(layer(h)), 0.5)
        return (self.out(h) + self.linear_part(x)) * PAYOFF_STD + PAYOFF_MEAN


def value_and_delta(model, spots):
    spots = spots.detach().clone().requires_grad_(True)
    value = model(spots)
    (delta,) = torch.autograd.grad(value.sum(), spots, retain_graph=True)
    return value.squeeze(-1), delta


def step(model, batch, balance=0.6):
    spots, y = batch
    value, delta = value_and_delta(model, spots)
    inv_rms = delta.new_tensor(INV_DELTA_RMS)
    price_loss = F.mse_loss(value / PAYOFF_STD, y["payoff"] / PAYOFF_STD)
    delta_loss = F.mse_loss(delta * inv_rms, y["deltas"] * inv_rms)
    return torch.lerp(price_loss, delta_loss, balance)


def build():
    return WarrantNet()
