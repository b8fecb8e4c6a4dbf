import math

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, leaky_relu, softplus


class GAT(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(width, width, bias=False)
        self.from_vector = nn.Parameter(torch.empty(heads, width // heads).normal_(std=0.5))
        self.to_vector = nn.Parameter(torch.empty(heads, width // heads).normal_(std=0.5))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor, bonds: Tensor) -> Tensor:
        h = self.project(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)  # b h n d
        send = torch.einsum("bhnd,hd->bhn", h, self.from_vector)
        receive = torch.einsum("bhnd,hd->bhn", h, self.to_vector)
        e = receive.unsqueeze(-1) + send.unsqueeze(-2)
        e = leaky_relu(e, 0.2).masked_fill(~bonds.unsqueeze(1), -1e9)
        e = (e - e.amax(-1, keepdim=True).detach()).exp()
        h = (e @ h) / e.sum(-1, keepdim=True)
        return h.transpose(1, 2).flatten(2) + self.bias


class Norm(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(width))
        self.beta = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        x = x - x.mean(-1, keepdim=True)
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-3) * self.gamma + self.beta


class Molecules(nn.Module):
    def __init__(self, features: int = 6, width: int = 12):
        super().__init__()
        self.embed = nn.Linear(features, width)
        self.layers = nn.ModuleList(nn.ModuleList((GAT(width, 3), Norm(width))) for _ in range(2))
        self.readout = nn.Linear(2 * width, 10)
        self.head = nn.Linear(10, 1)

    def forward(self, nodes: Tensor, adjacency: Tensor) -> Tensor:
        bonds = adjacency > 0
        atom = bonds.any(-1)
        h = self.embed(nodes)
        for gat, norm in self.layers:
            h = norm(h + gelu(gat(h, bonds))).masked_fill(~atom.unsqueeze(-1), 0.0)
        mean = h.sum(1) / atom.sum(1, keepdim=True).clamp(min=1)
        top = torch.where(atom.unsqueeze(-1), h, h.new_tensor(-1e4)).amax(1)
        return self.head(softplus(self.readout(torch.cat((mean, top), 1))))


class DecoupledAdam(torch.optim.Optimizer):
    """Adam whose epsilon is added to the uncorrected root, decay apart from the gradient."""

    def __init__(self, params, lr, betas, eps=1e-7, weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                s = self.state[p]
                if not s:
                    s["t"], s["m"], s["v"] = 0, torch.zeros_like(p), torch.zeros_like(p)
                s["t"] += 1
                p.mul_(1 - group["lr"] * group["weight_decay"])
                s["m"].lerp_(p.grad, 1 - b1)
                s["v"].mul_(b2).addcmul_(p.grad, p.grad, value=1 - b2)
                rate = group["lr"] * math.sqrt(1 - b2 ** s["t"]) / (1 - b1 ** s["t"])
                p.addcdiv_(s["m"], s["v"].sqrt().add_(group["eps"]), value=-rate)


def optimizer(model):
    plain, decayed = [], []
    for name, p in model.named_parameters():
        (plain if name.split(".")[-1] in ("bias", "gamma", "beta") else decayed).append(p)
    return DecoupledAdam(
        [dict(params=decayed, weight_decay=0.05), dict(params=plain)], lr=5e-3, betas=(0.9, 0.98)
    )


def build():
    return Molecules()
