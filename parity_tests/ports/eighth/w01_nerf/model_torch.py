import torch
from torch import nn
from torch.nn import functional as F


def fourier_features(x, num_bands):
    """x, its sines and its cosines at octaves."""
    freqs = 2.0 ** torch.arange(num_bands, device=x.device, dtype=x.dtype)
    angles = (freqs[:, None] * x.unsqueeze(-2)).flatten(-2)
    return torch.cat([x, angles.sin(), angles.cos()], dim=-1)


def composite(color, density, step):
    tau = density * step
    alpha = -torch.expm1(-tau)
    transmittance = torch.exp(-torch.cumsum(tau, dim=-1))
    w = alpha * transmittance
    return torch.einsum("bs,bsc->bc", w, color) + 1 - w.sum(-1, keepdim=True)


class Net(nn.Module):
    def __init__(self, hidden=48, point_bands=4, view_bands=2):
        super().__init__()
        self.point_bands, self.view_bands = point_bands, view_bands
        p, v = 3 * (1 + 2 * point_bands), 3 * (1 + 2 * view_bands)
        self.stem = nn.Sequential(nn.Linear(p, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.body = nn.Sequential(
            nn.Linear(hidden + p, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU()
        )
        self.density = nn.Linear(hidden, 1)
        self.bottleneck = nn.Linear(hidden, hidden)
        self.rgb = nn.Sequential(
            nn.Linear(hidden + v, hidden // 2), nn.ReLU(), nn.Linear(hidden // 2, 3), nn.Sigmoid()
        )

    def forward(self, points, delta, direction):
        p = fourier_features(points, self.point_bands)
        v = fourier_features(direction, self.view_bands)
        h = self.body(torch.cat([self.stem(p), p], dim=-1))
        density = F.softplus(self.density(h)).squeeze(-1)
        v = v.unsqueeze(1).expand(-1, points.shape[1], -1)
        color = self.rgb(torch.cat([self.bottleneck(h), v], dim=-1))
        return composite(color, density, delta)
