import math

import torch
from torch import nn
from torch.autograd import grad


class RandomFourier(nn.Module):
    def __init__(self, inputs, count, scale=1.0):
        super().__init__()
        self.register_buffer("B", scale * torch.randn(count, inputs))

    def forward(self, x):
        phase = math.pi * (x @ self.B.T)
        return torch.cat((phase.sin(), phase.cos()), dim=-1)


class AdaptiveTanh(nn.Module):
    def __init__(self, n=2.0):
        super().__init__()
        self.n = n
        self.a = nn.Parameter(torch.tensor(1.0 / n))

    def forward(self, z):
        return torch.tanh(self.n * self.a * z)


class BurgersPINN(nn.Module):
    def __init__(self, width=20, depth=3):
        super().__init__()
        sizes = [12] + [width] * depth
        hidden = [m for i, o in zip(sizes, sizes[1:]) for m in (nn.Linear(i, o), AdaptiveTanh())]
        self.net = nn.Sequential(RandomFourier(2, 6), *hidden, nn.Linear(width, 1))
        self.log_nu = nn.Parameter(torch.tensor(-2.0))

    def forward(self, xt):
        return self.net(xt)

    def residual(self, xt):
        x, t = (c.detach().requires_grad_(True) for c in xt.split(1, dim=1))
        u = self(torch.cat((x, t), dim=1))
        ones = torch.ones_like(u)
        u_x, u_t = grad(u, (x, t), ones, create_graph=True)
        (u_xx,) = grad(u_x, x, ones, create_graph=True)
        return u, u_t + u * u_x - self.log_nu.exp() * u_xx


def step(model, batch, weight=0.1):
    xt, measured = batch
    u, f = model.residual(xt)
    return (u - measured).pow(2).mean() + weight * f.pow(2).mean()


def build():
    return BurgersPINN()
