"""Plume in a tank, solved by a deep Galerkin network: points (t, x, y) -> concentration."""

import torch
from torch import nn

VELOCITY = [0.45, 0.1]
DIFFUSION = [[0.08, 0.02], [0.02, 0.05]]
DECAY = 0.12


class GalerkinCell(nn.Module):
    def __init__(self, width, dims=3):
        super().__init__()
        self.from_point = nn.Linear(dims, 4 * width)
        self.from_state = nn.Linear(width, 3 * width, bias=False)
        self.candidate = nn.Linear(width, width, bias=False)

    def forward(self, state, point):
        width = state.shape[-1]
        gates, inner = self.from_point(point).split((3 * width, width), -1)
        keep, mix, reset = torch.tanh(gates + self.from_state(state)).chunk(3, -1)
        new = torch.tanh(inner + self.candidate(reset * state))
        return torch.addcmul(new - mix * new, keep, state)


class PlumeNet(nn.Module):
    def __init__(self, width=24, depth=3):
        super().__init__()
        self.register_buffer("centre", torch.tensor([1.5, 2.0, 1.0]), persistent=False)
        self.register_buffer("reach", torch.tensor([1.5, 2.0, 1.0]), persistent=False)
        self.read_out = nn.Linear(width, 1)
        self.lift = nn.Linear(3, width)
        self.cells = nn.ModuleList(GalerkinCell(width) for _ in range(depth))

    def field(self, point):
        point = (point - self.centre) / self.reach
        state = self.lift(point).tanh()
        for cell in self.cells:
            state = cell(state, point)
        return self.read_out(state).squeeze(-1)

    def slope(self, point):
        """Concentration and its derivatives by t, x and y, both differentiable."""
        c = self.field(point)
        return c, torch.autograd.grad(c.sum(), point, create_graph=True)[0]

    def forward(self, interior, initial, wall, normal):
        return self.field(initial).unsqueeze(-1)


def step(model, batch):
    x, c0 = batch
    diffusion, velocity = c0.new_tensor(DIFFUSION), c0.new_tensor(VELOCITY)

    point = x["interior"].detach().requires_grad_()
    c, d = model.slope(point)
    flux = d[:, 1:] @ diffusion
    divergence = 0.0
    for axis in (0, 1):
        divergence = (
            divergence + torch.autograd.grad(flux[:, axis].sum(), point, create_graph=True)[0][:, axis + 1]
        )
    residual = d[:, 0] + d[:, 1:] @ velocity - divergence + DECAY * c

    edge = x["wall"].detach().requires_grad_()
    _, d = model.slope(edge)
    leak = torch.einsum("ni,ij,nj->n", x["normal"], diffusion, d[:, 1:])

    start = model(**x) - c0
    return residual.square().mean() + 20 * start.square().mean() + 4 * leak.square().mean()


def build():
    return PlumeNet()
