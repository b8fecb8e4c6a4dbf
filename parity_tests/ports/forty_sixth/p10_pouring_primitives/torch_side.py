"""Deep DMP policy: scan encoder and a differentiable movement primitive."""

import numpy as np
import torch
from torch import nn


def ring(c_in, c_out):
    return nn.Sequential(
        nn.Conv1d(c_in, c_out, 5, stride=2, padding=2, padding_mode="circular"),
        nn.GroupNorm(4, c_out),
        nn.ReLU(inplace=True),
    )


class DMP(nn.Module):
    def __init__(self, dofs=2, basis=10, steps=30, alpha_x=4.0, alpha_z=25.0):
        super().__init__()
        self.dofs, self.basis, self.steps = dofs, basis, steps
        self.alpha_x, self.alpha_z, self.beta_z = alpha_x, alpha_z, alpha_z / 4
        self.dt = 1.0 / steps
        c = np.exp(-alpha_x * np.linspace(0, 1, basis))
        h = 1.0 / (0.55 * np.diff(c)) ** 2
        h = np.insert(h, 0, h[0])
        dtype = torch.get_default_dtype()
        self.register_buffer("c", torch.from_numpy(c.astype(np.float32)).to(dtype), persistent=False)
        self.register_buffer("h", torch.from_numpy(h.astype(np.float32)).to(dtype), persistent=False)

    def forcing(self, w, x):
        psi = torch.exp(-self.h * (x - self.c) ** 2)
        return (w * psi[:, None]).sum(-1) / psi.sum(-1, keepdim=True) * x

    def forward(self, g, w, tau, y0, yd0):
        w = w.view(-1, self.dofs, self.basis)
        x = torch.ones_like(tau)
        y, z = y0, yd0
        traj = []
        for _ in range(self.steps):
            x = x - self.dt * self.alpha_x * x / tau
            f = self.forcing(w, x) * (g - y0)
            zd = (self.alpha_z * (self.beta_z * (g - y) - z) + f) / tau
            y, z = y + self.dt * z / tau, z + self.dt * zd
            traj.append(y)
        return torch.stack(traj, 1)


class PouringPolicy(nn.Module):
    def __init__(self, beams=64, dofs=2, basis=10, hidden=64):
        super().__init__()
        self.encoder = nn.Sequential(ring(1, 16), ring(16, 24))
        angle = torch.from_numpy((2 * np.pi * np.arange(beams // 4) / (beams // 4)).astype(np.float32))
        bearing = torch.from_numpy(np.stack([np.cos(angle.numpy()), np.sin(angle.numpy())], -1))
        self.register_buffer("bearing", bearing.to(torch.get_default_dtype()), persistent=False)
        self.policy = nn.Sequential(
            nn.Linear(3 * 24 + 2 * dofs, hidden),
            nn.Tanh(),
            nn.Linear(hidden, hidden),
            nn.Tanh(),
        )
        self.to_tau = nn.Linear(hidden, 1)
        self.to_goal = nn.Linear(hidden, dofs)
        self.to_weights = nn.Linear(hidden, dofs * basis)
        self.dmp = DMP(dofs, basis)

    def forward(self, scan, start, velocity):
        f = self.encoder(scan.unsqueeze(1))
        where = f.softmax(-1) @ self.bearing
        h = self.policy(torch.cat([where.flatten(1), f.amax(-1), start, velocity], dim=1))
        tau = 0.375 + 0.75 * self.to_tau(h).sigmoid()
        return self.dmp(self.to_goal(h), 50.0 * self.to_weights(h), tau, start, velocity)


def build():
    return PouringPolicy()
