import math

import torch
import torch.nn.functional as F
from torch import nn


class Residual(nn.Sequential):
    def forward(self, x):
        return x + super().forward(x)


class YieldModel(nn.Module):
    def __init__(self, width=16, dropout=0.1):
        super().__init__()
        self.register_buffer("centre", torch.tensor([15.0, 60.0, 60.0, 1.25]), persistent=False)
        self.register_buffer("spread", torch.tensor([4.0, 40.0, 8.0, 0.5]), persistent=False)
        self.soil = nn.Embedding(6, 4)
        self.body = nn.Sequential(
            nn.Linear(8, width),
            nn.Tanh(),
            *(
                Residual(
                    nn.LayerNorm(width, eps=1e-6),
                    nn.Linear(width, 2 * width),
                    nn.ELU(),
                    nn.Dropout(dropout),
                    nn.Linear(2 * width, width),
                )
                for _ in range(2)
            ),
        )
        self.evidence = nn.Linear(width, 4)

    def forward(self, weather, soil):
        x = torch.cat([(weather - self.centre) / self.spread, self.soil(soil)], dim=-1)
        raw = self.evidence(self.body(x))
        mean, rest = raw[:, :1], F.softplus(raw[:, 1:])
        return torch.cat([mean, rest + rest.new_tensor([0.0, 1.0, 0.0])], dim=1)


def evidential(output, target, weight):
    """Weighted by the area of the field; the mean is over the number of fields."""
    gamma, nu, alpha, beta = output.unbind(1)
    error = target.reshape(-1) - gamma
    omega = 2 * beta * (1 + nu)
    # Student's t with 2 alpha degrees of freedom
    likelihood = (
        torch.lgamma(alpha)
        - torch.lgamma(alpha + 0.5)
        + 0.5 * (math.log(math.pi) - nu.log() + omega.log())
        + (alpha + 0.5) * torch.log1p(nu * error.square() / omega)
    )
    loss = likelihood + 0.05 * error.abs() * (2 * nu + alpha)
    return (loss * weight.reshape(-1)).mean()
