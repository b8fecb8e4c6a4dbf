"""GCNII over substations on lists of edges (PyTorch)."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence


class InitialResidualConv(nn.Module):
    """The identity is folded into the weight: ((1 - b) I + b W) applied at once."""

    def __init__(self, dim, layer, alpha=0.15, lamda=0.6):
        super().__init__()
        self.alpha = alpha
        self.beta = math.log1p(lamda / layer)
        self.weight = nn.Parameter(torch.empty(dim, dim))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, h, h0, src, dst, coef):
        spread = torch.zeros_like(h).index_add(0, dst, h[src] * coef[:, None])
        mixed = torch.lerp(spread, h0, self.alpha)
        eye = torch.eye(len(self.weight), dtype=h.dtype, device=h.device)
        return F.relu(mixed @ torch.lerp(eye, self.weight, self.beta))


class GridState(nn.Module):
    def __init__(self, n_features=6, dim=16, depth=5, n_states=4):
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(n_features, dim), nn.ELU())
        self.convs = nn.ModuleList(InitialResidualConv(dim, i + 1) for i in range(depth))
        self.norm = nn.LayerNorm(dim)
        self.gate = nn.Linear(dim, 1)
        self.classify = nn.Sequential(nn.Linear(2 * dim, 20), nn.Tanh(), nn.Linear(20, n_states))

    @staticmethod
    def edges(lines, present):
        """Lines between the existing nodes of all graphs, numbered through, with a loop a node."""
        index = present.flatten().long().cumsum(0).view_as(present) - 1
        graph, src, dst = lines.nonzero(as_tuple=True)
        weight = lines[graph, src, dst]
        n = int(present.sum())
        loops = torch.arange(n, device=lines.device)
        src = torch.cat([index[graph, src], loops])
        dst = torch.cat([index[graph, dst], loops])
        weight = torch.cat([weight, weight.new_ones(n)])
        degree = weight.new_zeros(n).index_add(0, dst, weight)
        return src, dst, weight / torch.sqrt(degree[src] * degree[dst])

    def forward(self, readings, lines, exists):
        present = exists > 0
        src, dst, coef = self.edges(lines, present)
        h = h0 = self.embed(readings[present])
        for conv in self.convs:
            h = conv(h, h0, src, dst, coef)
        h = self.norm(h)

        sizes = present.sum(1).tolist()
        nodes = pad_sequence(h.split(sizes), batch_first=True)
        scores = pad_sequence(self.gate(h).split(sizes), batch_first=True, padding_value=float("-inf"))
        pooled = torch.einsum("bnd,bn->bd", nodes, scores.squeeze(-1).softmax(1))
        top = torch.stack([part.amax(0) for part in h.split(sizes)])
        return self.classify(torch.cat([pooled, top], dim=1))


class AdamWHat(torch.optim.Optimizer):
    """AdamW with epsilon beside the uncorrected second moment, as in the paper's faster form."""

    def __init__(self, params, lr, betas, eps, weight_decay):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None):
        value = None
        if closure is not None:
            with torch.enable_grad():
                value = closure()
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state.update(t=0, m=torch.zeros_like(p), v=torch.zeros_like(p))
                state["t"] += 1
                state["m"].lerp_(p.grad, 1 - b1)
                state["v"].mul_(b2).addcmul_(p.grad, p.grad, value=1 - b2)
                p.mul_(1 - group["lr"] * group["weight_decay"])
                rate = group["lr"] * math.sqrt(1 - b2 ** state["t"]) / (1 - b1 ** state["t"])
                p.addcdiv_(state["m"], state["v"].sqrt().add_(group["eps"]), value=-rate)
        return value


def optimizer(params, peak=4e-3, warm=8):
    params = list(params)
    groups = [
        {"params": [p for p in params if p.ndim > 1], "weight_decay": 0.05},
        {"params": [p for p in params if p.ndim <= 1], "weight_decay": 0.0},
    ]
    opt = AdamWHat(groups, lr=peak, betas=(0.9, 0.98), eps=1e-6, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda i: min((i + 1) / warm, math.sqrt(warm / (i + 1)))
    )
    return opt, schedule


def build():
    return GridState()
