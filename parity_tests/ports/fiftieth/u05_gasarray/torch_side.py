import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


def delay_system(order, theta):
    a = np.zeros((order, order))
    b = np.zeros(order)
    for i in range(order):
        b[i] = (2 * i + 1) / theta * (-1) ** i
        for j in range(order):
            a[i, j] = (2 * i + 1) / theta * (-1 if i < j else (-1) ** (i - j + 1))
    eye = np.eye(order)
    ad = np.linalg.solve(eye - a / 2, eye + a / 2)
    bd = np.linalg.solve(eye - a / 2, b)
    return torch.tensor(ad, dtype=torch.float32), torch.tensor(bd, dtype=torch.float32)


class LMU(nn.Module):
    def __init__(self, inputs, units, channels, order, theta):
        super().__init__()
        self.channels, self.order = channels, order
        a, b = delay_system(order, theta)
        self.register_buffer("a", a, persistent=False)
        self.register_buffer("b", b, persistent=False)
        self.in_to_h = nn.Linear(inputs, units)
        self.in_to_u = nn.Linear(inputs, channels, bias=False)
        self.h_to_u = nn.Linear(units, channels, bias=False)
        self.h_to_h = nn.Linear(units, units, bias=False)
        self.m_to_h = nn.Linear(channels * order, units, bias=False)

    def forward(self, x):
        drive_h, drive_u = self.in_to_h(x), self.in_to_u(x)
        h = x.new_zeros(x.shape[0], self.h_to_h.in_features)
        m = x.new_zeros(x.shape[0], self.channels, self.order)
        for t in range(x.shape[1]):
            u = drive_u[:, t] + self.h_to_u(h)
            m = torch.einsum("qp,bcp->bcq", self.a, m) + torch.einsum("bc,q->bcq", u, self.b)
            h = torch.tanh(drive_h[:, t] + self.h_to_h(h) + self.m_to_h(m.flatten(1)))
        return h


class GasArray(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(6, 10, 3)
        self.lmu = LMU(10, 16, 4, 5, 18.0)
        self.head = nn.Sequential(nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 3))

    def forward(self, signals):
        x = F.pad(signals.transpose(1, 2), (2, 0))
        return self.head(self.lmu(self.conv(x).relu().transpose(1, 2)))


def build():
    return GasArray()


class CentredBelief(torch.optim.Optimizer):
    def __init__(self, params, lr=4e-3, betas=(0.9, 0.99), eps=1e-6):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps))

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            b1, b2 = group["betas"]
            eps = group["eps"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                g = p.grad
                if g.ndim > 1:
                    g = g - g.mean(dim=tuple(range(g.ndim - 1)), keepdim=True)
                state = self.state[p]
                if not state:
                    state["t"] = 0
                    state["m"] = torch.zeros_like(p)
                    state["s"] = torch.zeros_like(p)
                state["t"] += 1
                m, s, t = state["m"], state["s"], state["t"]
                m.mul_(b1).add_(g, alpha=1 - b1)
                diff = g - m
                s.mul_(b2).addcmul_(diff, diff, value=1 - b2).add_(eps * eps)
                denom = (s / (1 - b2**t)).sqrt_().add_(eps)
                p.addcdiv_(m, denom, value=-group["lr"] / (1 - b1**t))
        return loss


def restarts(peak=4e-3, floor=8e-4, first=8, shrink=0.7):
    def factor(step):
        length, cycle = first, 0
        while step >= length:
            step -= length
            length *= 2
            cycle += 1
        cosine = 0.5 * (1 + math.cos(math.pi * step / length))
        return shrink**cycle * (floor + (peak - floor) * cosine) / peak

    return factor


def optimizer(params):
    opt = CentredBelief(params, lr=4e-3)
    return opt, torch.optim.lr_scheduler.LambdaLR(opt, restarts())
