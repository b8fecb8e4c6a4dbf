import torch
from torch import nn


class Heat(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 20), nn.Tanh(), nn.Linear(20, 20), nn.Tanh(), nn.Linear(20, 1))

    def forward(self, points):
        t, x = points.unbind(-1)
        return torch.sin(torch.pi * x) + t * (x - x**2) * self.net(points).squeeze(-1)


def step(model, batch):
    points, observed = batch
    t, x = (column.clone().requires_grad_() for column in points.unbind(1))
    u = model(torch.stack([t, x], -1))
    u_t, u_x = torch.autograd.grad(u.sum(), (t, x), create_graph=True)
    (u_xx,) = torch.autograd.grad(u_x.sum(), x, create_graph=True)
    return nn.functional.mse_loss(u, observed.flatten()) + (u_t - 0.1 * u_xx).square().mean() / 2
