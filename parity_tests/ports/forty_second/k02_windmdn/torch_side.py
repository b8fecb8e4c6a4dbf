import math

import torch
from torch import Tensor, nn

N_COMPONENTS = 5
SIGMA_FLOOR = 0.05


class PreNormMLP(nn.Sequential):
    def __init__(self, d: int):
        super().__init__(nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.SiLU(), nn.Linear(2 * d, d))

    def forward(self, x: Tensor) -> Tensor:
        return x + super().forward(x)


class WindMDN(nn.Module):
    mean: Tensor
    std: Tensor

    def __init__(self, d: int = 32):
        super().__init__()
        self.register_buffer("mean", torch.tensor([5.5, 8.0, 0.15, 1.22, 280.0]))
        self.register_buffer("std", torch.tensor([2.6, 3.4, 0.1, 0.05, 8.0]))
        self.trunk = nn.Sequential(
            nn.Linear(11, d), nn.Tanh(), *(PreNormMLP(d) for _ in range(3)), nn.LayerNorm(d)
        )
        self.heads = nn.ModuleDict({n: nn.Linear(d, N_COMPONENTS) for n in ("weight", "loc", "scale")})

    def features(self, x: Tensor) -> Tensor:
        w10, w100 = x[:, 0:2], x[:, 2:4]
        temp, pressure, hour = x[:, 4:].unbind(1)
        s10 = (w10.square().sum(1) + 0.01).sqrt()
        s100 = (w100.square().sum(1) + 0.01).sqrt()
        shear = torch.log10(s100) - torch.log10(s10)
        rho = pressure * 100.0 / (287.05 * temp)
        base = (torch.stack((s10, s100, shear, rho, temp), 1) - self.mean) / self.std
        theta = torch.atan2(w100[:, 1], w100[:, 0])
        phase = hour * (math.pi / 12.0)
        extra = (theta.sin(), (2 * theta).sin(), theta.cos(), (2 * theta).cos(), phase.sin(), phase.cos())
        return torch.cat((base, torch.stack(extra, 1)), 1)

    def forward(self, x: Tensor) -> Tensor:
        h = self.trunk(self.features(x))
        return torch.cat([head(h) for head in self.heads.values()], dim=1)


def nll(out: Tensor, y: Tensor) -> Tensor:
    w, loc, scale = out.chunk(3, dim=1)
    scale = nn.functional.softplus(scale).clamp(min=SIGMA_FLOOR)
    y = y.view(-1, 1)
    density = torch.distributions.Normal(loc, scale).log_prob(y)
    lower = torch.special.log_ndtr((0.0 - loc) / scale)
    upper = torch.special.log_ndtr((loc - 1.0) / scale)
    lp = torch.where(y <= 0, lower, torch.where(y >= 1, upper, density))
    return (torch.logsumexp(w, 1) - torch.logsumexp(w + lp, 1)).mean()


def build() -> nn.Module:
    return WindMDN()
