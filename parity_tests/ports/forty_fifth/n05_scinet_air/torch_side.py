import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.lr_scheduler import LambdaLR


def conv_module(channels, hidden):
    return nn.Sequential(
        nn.ReplicationPad1d(3),
        nn.Conv1d(channels, hidden, 5),
        nn.LeakyReLU(0.125, inplace=True),
        nn.Conv1d(hidden, channels, 3),
        nn.Tanh(),
    )


class SCIBlock(nn.Module):
    def __init__(self, channels, expand):
        super().__init__()
        self.P, self.U, self.phi, self.psi = (conv_module(channels, channels * expand) for _ in range(4))

    def forward(self, x):
        x_even, x_odd = x[..., 0::2], x[..., 1::2]
        d = x_odd * self.phi(x_even).exp()
        c = x_even * self.psi(x_odd).exp()
        return c + self.U(d), d - self.P(c)


class SCITree(nn.Module):
    def __init__(self, channels, expand, depth):
        super().__init__()
        self.block = SCIBlock(channels, expand)
        self.children_ = (
            nn.ModuleList(SCITree(channels, expand, depth - 1) for _ in range(2)) if depth > 1 else None
        )

    def forward(self, x):
        halves = self.block(x)
        if self.children_ is not None:
            halves = [child(h) for child, h in zip(self.children_, halves)]
        return torch.stack(tuple(halves), dim=-1).flatten(-2)


class SCINet(nn.Module):
    def __init__(self, seq_len=48, pred_len=24, channels=7, expand=2, depth=2):
        super().__init__()
        self.pred_len = pred_len
        self.tree1 = SCITree(channels, expand, depth)
        self.tree2 = SCITree(channels, expand, depth)
        self.out1 = nn.Linear(seq_len, pred_len, bias=False)
        self.out2 = nn.Linear(seq_len, pred_len, bias=False)
        self.pe_scale = nn.Parameter(torch.full((channels,), 0.1))
        self.register_buffer("pe", self.sinusoid(seq_len, channels), persistent=False)

    @staticmethod
    def sinusoid(length, channels):
        even = channels + channels % 2
        phase = np.arange(length)[:, None] / 10000.0 ** (np.arange(0, even, 2) / even)
        table = np.stack([np.sin(phase), np.cos(phase)], -1).reshape(length, even)
        return torch.from_numpy(table[:, :channels].T.astype(np.float32).copy())

    def forward(self, history, observed):
        x, m = history.mT, observed.to(history.dtype).mT
        n = m.sum(-1, keepdim=True).clamp(min=1)
        mu = (x * m).sum(-1, keepdim=True) / n
        x = (x - mu) * m
        sigma = (x.square().sum(-1, keepdim=True) / n + 1e-4).sqrt()
        x = x / sigma
        x = x + self.pe_scale.unsqueeze(-1) * self.pe.to(x.dtype)

        mid = self.out1(x + self.tree1(x))
        y = torch.cat([x[..., self.pred_len :], mid], -1)
        out = self.out2(y + self.tree2(y))
        return torch.stack([mid * sigma + mu, out * sigma + mu], 1).mT


def loss(outputs, targets):
    value, seen = targets.unsqueeze(1).unbind(-1)
    err = F.huber_loss(outputs, value.expand_as(outputs), reduction="none", delta=0.5)
    mid, final = ((err * seen).sum((0, 2, 3)) / seen.sum()).unbind()
    return final + 0.4 * mid


class Lamb(torch.optim.Optimizer):
    """LAMB with decoupled weight decay; clips by the norm of all gradients together first."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0, max_grad_norm=None):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))
        self.max_grad_norm = max_grad_norm

    @torch.no_grad()
    def step(self, closure=None):
        value = None
        if closure is not None:
            with torch.enable_grad():
                value = closure()
        scale = 1.0
        if self.max_grad_norm is not None:
            grads = [p.grad for g in self.param_groups for p in g["params"] if p.grad is not None]
            norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in grads]))
            scale = (self.max_grad_norm / norm).clamp(max=1.0)
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                grad, state = p.grad * scale, self.state[p]
                if not state:
                    state["step"] = 0
                    state["m"], state["v"] = torch.zeros_like(p), torch.zeros_like(p)
                state["step"] += 1
                m, v = state["m"], state["v"]
                m.lerp_(grad, 1 - b1)
                v.mul_(b2).addcmul_(grad, grad, value=1 - b2)
                update = m / (1 - b1 ** state["step"])
                update = update / ((v / (1 - b2 ** state["step"])).sqrt() + group["eps"])
                p.mul_(1 - group["lr"] * group["weight_decay"])
                w_norm, u_norm = p.norm(), update.norm()
                trust = torch.where((w_norm > 0) & (u_norm > 0), w_norm / u_norm, torch.ones_like(w_norm))
                p.sub_(group["lr"] * trust * update)
        return value


def optimizer(parameters, peak=8e-3, start=2e-4, warmup=12, total=200, floor=0.05):
    parameters = list(parameters)
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": 0.02},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    opt = Lamb(groups, lr=peak, betas=(0.875, 1 - 2**-10), max_grad_norm=0.5)

    def factor(step):
        if step < warmup:
            return (start + (peak - start) * step / warmup) / peak
        done = min(step - warmup, total) / total
        return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * done))

    return opt, LambdaLR(opt, factor)


def build():
    return SCINet()
