"""Demand quantiles with reversible instance normalisation and an MLP mixer."""

import math

import torch
import torch.nn.functional as F
from torch import nn

HISTORY, CHANNELS, HORIZON = 36, 3, 12
QUANTILES = (0.1, 0.5, 0.9)
DEPTH, HIDDEN = 2, 10


class Mixer(nn.Module):
    """Residual mixing over time, then over channels; x is (B, T, C)."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm((HISTORY, CHANNELS), eps=1e-3)
        self.time = nn.Linear(HISTORY, HISTORY)
        self.drop = nn.Dropout(0.1)
        self.expand = nn.Linear(CHANNELS, HIDDEN)
        self.reduce = nn.Linear(HIDDEN, CHANNELS)

    def forward(self, x):
        mixed = torch.einsum("btc,st->bsc", self.norm(x), self.time.weight)
        mixed = F.relu(mixed + self.time.bias[:, None])
        x = x + self.drop(mixed)
        return x + self.reduce(F.relu(self.expand(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(CHANNELS))
        self.beta = nn.Parameter(torch.zeros(CHANNELS))
        self.mixers = nn.Sequential(*(Mixer() for _ in range(DEPTH)))
        self.quantiles = nn.Linear(CHANNELS, len(QUANTILES))
        self.horizon = nn.Linear(HISTORY, HORIZON)

    def forward(self, x):
        var, mean = torch.var_mean(x, dim=1, keepdim=True, unbiased=False)
        scale = torch.sqrt(var + 1e-5)
        x = torch.addcmul(self.beta, (x - mean) / scale, self.gamma)

        raw = self.quantiles(self.mixers(x))
        raw = self.horizon(raw.transpose(1, 2))
        low, *gaps = raw.unbind(dim=1)
        levels = [low]
        for gap in gaps:
            levels.append(levels[-1] + F.softplus(gap))
        y = torch.stack(levels, dim=-1)

        demand = (y - self.beta[0]) / self.gamma[0]
        return demand * scale[..., :1] + mean[..., :1]


def loss(outputs, targets):
    """Pinball loss: q * e above the quantile, (q - 1) * e below it."""
    total = 0
    for k, q in enumerate(QUANTILES):
        error = targets - outputs[..., k]
        total = total + torch.where(error >= 0, q * error, (q - 1) * error).mean()
    return total / len(QUANTILES)


class AdamW(torch.optim.Optimizer):
    """Decoupled weight decay; epsilon next to the raw second moment (TF form)."""

    def __init__(self, groups, lr, betas=(0.9, 0.98), eps=1e-7):
        super().__init__(groups, dict(lr=lr, betas=betas, eps=eps, weight_decay=0.0))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            lr, (b1, b2) = group["lr"], group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state.update(n=0, m=torch.zeros_like(p), v=torch.zeros_like(p))
                state["n"] += 1
                m, v, n = state["m"], state["v"], state["n"]
                p.mul_(1 - lr * group["weight_decay"])
                m.mul_(b1).add_(p.grad, alpha=1 - b1)
                v.mul_(b2).addcmul_(p.grad, p.grad, value=1 - b2)
                rate = lr * math.sqrt(1 - b2**n) / (1 - b1**n)
                p.addcdiv_(m, v.sqrt().add_(group["eps"]), value=-rate)


def make_optimizer(model):
    """Weight decay on the weights of linear layers only."""
    decayed = {id(m.weight) for m in model.modules() if isinstance(m, nn.Linear)}
    groups = [
        {"params": [p for p in model.parameters() if id(p) in decayed], "weight_decay": 0.05},
        {"params": [p for p in model.parameters() if id(p) not in decayed]},
    ]
    return AdamW(groups, lr=3e-3)
