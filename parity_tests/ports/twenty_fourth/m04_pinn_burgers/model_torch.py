"""Physics-informed network for Burgers' equation with learned viscosity."""

import math

import torch
from torch import nn

WIDTH, DEPTH = 20, 3
RESIDUAL_WEIGHT = 0.1


def derivative(value, variable):
    """d value / d variable per sample, differentiable again."""
    (grad,) = torch.autograd.grad(value, variable, torch.ones_like(value), create_graph=True)
    return grad


class Net(nn.Module):
    """u(t, x): tanh layers blended between two encodings of the input."""

    def __init__(self):
        super().__init__()
        self.log_nu = nn.Parameter(torch.tensor(-2.0))
        self.gate_u = nn.Linear(4, WIDTH)
        self.gate_v = nn.Linear(4, WIDTH)
        sizes = [4] + [WIDTH] * DEPTH
        self.hidden = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes[:-1], sizes[1:]))
        self.head = nn.Linear(WIDTH, 1)

    def field(self, t, x):
        angle = math.pi * x
        f = torch.cat((t, x, angle.sin(), angle.cos()), dim=1)
        u, v = self.gate_u(f).tanh(), self.gate_v(f).tanh()
        h = f
        for layer in self.hidden:
            h = torch.lerp(u, v, layer(h).tanh())
        return self.head(h)

    def forward(self, tx):
        return self.field(*tx.split(1, dim=1))


def step(model, batch):
    """Loss of one batch: sensor misfit plus weighted equation residual."""
    tx, y = batch
    t, x = (col.detach().clone().requires_grad_() for col in tx.split(1, dim=1))
    u = model.field(t, x)
    u_t = derivative(u, t)
    u_x = derivative(u, x)
    u_xx = derivative(u_x, x)
    res = u_t + u * u_x - model.log_nu.exp() * u_xx
    misfit = (u - y.reshape(u.shape)).pow(2).mean()
    return misfit + RESIDUAL_WEIGHT * res.pow(2).mean()
