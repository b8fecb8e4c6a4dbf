import torch
import torch.nn.functional as F
from torch import nn


class Spline(nn.Module):
    def __init__(self, inputs, outputs, low=-2.0, high=2.0, points=5):
        super().__init__()
        self.norm = nn.LayerNorm(inputs)
        self.base = nn.Linear(inputs, outputs)
        self.coefficients = nn.Parameter(
            torch.randn(inputs, points, outputs) * (2 / (inputs + outputs)) ** 0.5
        )
        self.register_buffer("grid", torch.linspace(low, high, points), persistent=False)
        self.width = (high - low) / points

    def forward(self, x):
        basis = torch.exp(-(((self.norm(x).unsqueeze(-1) - self.grid) / self.width) ** 2))
        return torch.tensordot(basis, self.coefficients, dims=2) + self.base(F.silu(x))


class Net(nn.Module):
    def __init__(self, widths=(6, 10, 8, 2)):
        super().__init__()
        self.layers = nn.Sequential(*[Spline(i, o) for i, o in zip(widths[:-1], widths[1:])])

    def forward(self, x):
        return self.layers(x)
