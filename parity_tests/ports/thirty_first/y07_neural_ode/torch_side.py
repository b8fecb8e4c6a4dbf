import torch
import torch.nn as nn


class ODEFunc(nn.Module):
    def __init__(self, dim=6, width=24):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(dim + 1, width),
            nn.Tanh(),
            nn.Linear(width, width),
            nn.Tanh(),
            nn.Linear(width, dim),
        )

    def forward(self, t, z):
        t = torch.full_like(z[:, :1], t)
        return self.net(torch.cat((z, t), dim=1))


def rk4_step(func, t, dt, z):
    k1 = func(t, z)
    k2 = func(t, z + 0.5 * dt * k1)
    k3 = func(t, z + 0.5 * dt * k2)
    k4 = func(t + dt, z + dt * k3)
    return z + (k1 + 2 * k2 + 2 * k3 + k4) * (dt / 6)


class LatentODE(nn.Module):
    def __init__(self, n_in=10, dim=6, times=(0.0, 0.5, 1.0, 2.0), substeps=2):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(n_in, 16), nn.Softplus(), nn.Linear(16, dim))
        self.func = ODEFunc(dim)
        self.readout = nn.Linear(dim, 1)
        self.times, self.substeps = times, substeps

    def forward(self, x):
        z = self.encoder(x)
        states = []
        for a, b in zip(self.times[:-1], self.times[1:]):
            dt = (b - a) / self.substeps
            for i in range(self.substeps):
                z = rk4_step(self.func, a + i * dt, dt, z)
            states.append(z)
        return self.readout(torch.stack(states, dim=1)).squeeze(-1)


def build():
    return LatentODE()
