import torch
from torch import nn


class SmoothMLP(nn.Module):
    """Sigmoid MLP which carries a direction along with its values."""

    def __init__(self, *widths):
        super().__init__()
        self.linears = nn.ModuleList(nn.Linear(a, b) for a, b in zip(widths, widths[1:]))

    def forward(self, h, t=None):
        last = len(self.linears) - 1
        for k, linear in enumerate(self.linears):
            h = linear(h)
            if t is not None:
                t = t @ linear.weight.T
            if k < last:
                h = h.sigmoid()
                if t is not None:
                    t = t * h * (1 - h)
        return h if t is None else (h, t)


class Sindy(nn.Module):
    def __init__(self, sensors=24, latent=3):
        super().__init__()
        quadratic = latent * (latent + 1) // 2
        self.coefficients = nn.Parameter(torch.ones(1 + 2 * latent + quadratic, latent))
        self.down = SmoothMLP(sensors, 32, 12, latent)
        self.up = SmoothMLP(latent, 12, 32, sensors)
        self.register_buffer("pairs", torch.triu_indices(latent, latent), persistent=False)

    def theta(self, z):
        i, j = self.pairs
        return torch.cat([z.new_ones(len(z), 1), z, z[:, i] * z[:, j], z.sin()], dim=-1)

    def forward(self, x):
        return self.up(self.down(x))


def step(model, batch):
    x, xdot = batch
    z, zdot = model.down(x, xdot)
    zdot_model = model.theta(z) @ model.coefficients
    recon, recon_dot = model.up(z, zdot_model)
    mse = nn.functional.mse_loss
    return (
        mse(recon, x)
        + 0.5 * mse(recon_dot, xdot)
        + 0.05 * mse(zdot_model, zdot)
        + 2e-4 * model.coefficients.abs().sum()
    )


def build():
    return Sindy()
