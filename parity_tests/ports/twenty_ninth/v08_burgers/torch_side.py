import torch
import torch.nn as nn
import torch.nn.functional as F

VISCOSITY, PDE_WEIGHT = 0.05, 0.3


class Surrogate(nn.Module):
    def __init__(self, width=14):
        super().__init__()
        self.l1 = nn.Linear(2, width)
        self.l2 = nn.Linear(width, width)
        self.mixer = nn.Linear(2, width)
        self.l3 = nn.Linear(width, 1)

    def forward(self, x):
        s = torch.sin(self.l1(x) * 3)
        return self.l3(torch.lerp(s, torch.tanh(self.l2(s)), torch.sigmoid(self.mixer(x))))


def d(out, inp):
    return torch.autograd.grad(out.sum(), inp, create_graph=True)[0]


def step(model, batch):
    x, y = batch
    x = x.detach().clone().requires_grad_(True)
    u = model(x)
    du = d(u, x)
    dxx = d(du[:, 1], x)[:, 1:]
    residual = du[:, :1] + u * du[:, 1:] - VISCOSITY * dxx
    return F.mse_loss(u, y) + PDE_WEIGHT * residual.square().mean()


def build():
    return Surrogate()
