from functools import partial

import torch
from torch import nn


def pendulum(net, constants, y, u):
    angle, speed = y.split(1, dim=1)
    extra = net(torch.cat((angle.sin(), speed, u), 1))
    accel = (
        extra + u - constants["log_stiffness"].exp() * angle.sin() - constants["log_damping"].exp() * speed
    )
    return torch.cat((speed, accel), 1)


def rk4_step(f, y, h, u0, um, u1):
    k1 = f(y, u0)
    k2 = f(y + 0.5 * h * k1, um)
    k3 = f(y + 0.5 * h * k2, um)
    k4 = f(y + h * k3, um)
    return y + h * (k1 + 2.0 * (k2 + k3) + k4) / 6.0


class NeuralPendulum(nn.Module):
    def __init__(self, steps=6, h=0.25):
        super().__init__()
        self.steps, self.h = steps, h
        self.constants = nn.ParameterDict(
            {
                "log_stiffness": nn.Parameter(torch.tensor(0.3)),
                "log_damping": nn.Parameter(torch.tensor(-1.2)),
            }
        )
        self.net = nn.Sequential(nn.Linear(3, 14), nn.Tanh(), nn.Linear(14, 1))

    def forward(self, state, drive):
        f = partial(pendulum, self.net, self.constants)
        u = drive.unsqueeze(-1)
        y, path = state, []
        for i in range(self.steps):
            path.append(y)
            y = rk4_step(f, y, self.h, u[:, 2 * i], u[:, 2 * i + 1], u[:, 2 * i + 2])
        return torch.stack(path, dim=1)


def build():
    return NeuralPendulum()
