import math

import torch
import torch.nn.functional as F
from torch import nn


class GATLayer(nn.Module):
    def __init__(self, features, units, heads):
        super().__init__()
        self.heads, self.units = heads, units
        self.project = nn.Linear(features, heads * units, bias=False)
        self.att_src = nn.Parameter(0.3 * torch.randn(heads, units))
        self.att_dst = nn.Parameter(0.3 * torch.randn(heads, units))
        self.bias = nn.Parameter(torch.zeros(heads * units))

    def forward(self, x, adjacency):
        h = self.project(x).unflatten(-1, (self.heads, self.units)).transpose(1, 2)  # B, H, N, U
        src = (h * self.att_src[:, None]).sum(-1)
        dst = (h * self.att_dst[:, None]).sum(-1)
        e = F.leaky_relu(dst.unsqueeze(-1) + src.unsqueeze(-2), 0.2)
        e = e.masked_fill(~adjacency.unsqueeze(1), float("-inf"))
        return (e.softmax(-1) @ h).transpose(1, 2).flatten(2) + self.bias


class SolubilityGAT(nn.Module):
    def __init__(self, features=7, units=6, heads=3):
        super().__init__()
        width = units * heads
        self.gat1, self.gat2 = GATLayer(features, units, heads), GATLayer(width, units, heads)
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.readout = nn.Sequential(nn.Linear(2 * width, 16), nn.SiLU(), nn.Linear(16, 1))

    def forward(self, atoms, bonds, present):
        adjacency = bonds.bool() | torch.eye(bonds.shape[-1], dtype=torch.bool, device=bonds.device)
        x = F.elu(self.ln1(self.gat1(atoms, adjacency)))
        x = x + F.elu(self.ln2(self.gat2(x, adjacency)))
        total = torch.einsum("bnd,bn->bd", x, present)
        return self.readout(torch.cat([total, total / present.sum(1, keepdim=True)], dim=1))


def log_cosh_loss(prediction, target):
    e = prediction - target
    return (e + F.softplus(-2 * e) - math.log(2)).mean()


class KerasRMSprop(torch.optim.Optimizer):
    """RMSprop as Keras has it: epsilon under the root, the rate inside the velocity, decoupled decay, global clipping."""

    def __init__(self, params, lr, rho=0.95, momentum=0.8, eps=1e-7, weight_decay=0.0, max_norm=1.0):
        super().__init__(params, dict(lr=lr, rho=rho, momentum=momentum, eps=eps, weight_decay=weight_decay))
        self.max_norm = max_norm

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        grads = [p.grad for g in self.param_groups for p in g["params"] if p.grad is not None]
        norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in grads]))
        scale = self.max_norm / norm.clamp(min=self.max_norm)
        for group in self.param_groups:
            lr = group["lr"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                g, state = p.grad * scale, self.state[p]
                if not state:
                    state["square"], state["velocity"] = torch.zeros_like(p), torch.zeros_like(p)
                p.mul_(1 - lr * group["weight_decay"])
                state["square"].lerp_(g * g, 1 - group["rho"])
                state["velocity"].mul_(group["momentum"]).add_(
                    lr * g * (state["square"] + group["eps"]).rsqrt()
                )
                p.sub_(state["velocity"])
        return loss


def configure_optimizer(parameters, peak=5e-3, warmup=4, decay_steps=30, floor=0.1):
    parameters = list(parameters)
    optimizer = KerasRMSprop(
        [
            {"params": [p for p in parameters if p.ndim > 1], "weight_decay": 0.02},
            {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
        ],
        lr=peak,
    )

    def factor(step):
        if step < warmup:
            return step / warmup
        done = min((step - warmup) / decay_steps, 1.0)
        return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * done))

    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def build():
    return SolubilityGAT()
