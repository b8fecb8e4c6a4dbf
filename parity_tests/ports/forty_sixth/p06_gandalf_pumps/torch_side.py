import math

import torch
import torch.nn as nn
import torch.nn.functional as F

MEAN = (1200.0, 32.0, 850.0, 0.5, 12.0, 3.0, 41.5, 7.25, 0.0)
SCALE = (512.0, 16.0, 512.0, 0.25, 8.0, 2.0, 16.0, 1.5, 1.0)
PI = torch.tensor(math.pi, dtype=torch.float32).item()


class PeriodicEmbedding(nn.Module):
    def __init__(self, n, frequencies=3, width=4, sigma=0.3):
        super().__init__()
        self.register_buffer("mean", torch.tensor(MEAN), persistent=False)
        self.register_buffer("scale", torch.tensor(SCALE), persistent=False)
        self.frequency = nn.Parameter(torch.randn(n, frequencies) * sigma)
        self.weight = nn.Parameter(torch.empty(n, 2 * frequencies, width).uniform_(-1, 1))
        self.bias = nn.Parameter(torch.zeros(n, width))
        self.missing = nn.Parameter(torch.zeros(n))

    def forward(self, x):
        absent = x.isnan()
        x = torch.where(absent, self.missing, (torch.nan_to_num(x) - self.mean) / self.scale)
        angle = 2 * PI * self.frequency * x.unsqueeze(-1)
        h = torch.cat((angle.cos(), angle.sin()), -1)
        h = torch.baddbmm(self.bias.unsqueeze(1), h.transpose(0, 1), self.weight)
        return h.relu().transpose(0, 1).flatten(1)


class GFLUStage(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.w_in = nn.Linear(2 * n, 2 * n)
        self.w_out = nn.Linear(2 * n, n)

    def forward(self, h, feature):
        z, r = self.w_in(torch.cat((feature, h), 1)).sigmoid().chunk(2, 1)
        out = torch.tanh(self.w_out(torch.cat((r * h, feature), 1)))
        return torch.lerp(h, out, z)


class GFLU(nn.Module):
    def __init__(self, n, stages=4):
        super().__init__()
        self.feature_masks = nn.Parameter(2 * torch.rand(stages, n))
        self.t = nn.Parameter(torch.ones(stages, 1))
        self.stage = nn.ModuleList(GFLUStage(n) for _ in range(stages))

    def sparse_masks(self):
        shifted = self.feature_masks - self.feature_masks.max(-1, keepdim=True).values
        return F.normalize(F.relu(shifted + F.softplus(self.t)) * shifted.exp(), p=1, dim=-1)

    def forward(self, x):
        h = x
        for mask, stage in zip(self.sparse_masks(), self.stage):
            h = stage(h, mask * x)
        return h


class Gandalf(nn.Module):
    def __init__(self, n_numeric=9, cardinalities=(12, 7, 5, 20, 4), width=4, n_classes=3):
        super().__init__()
        self.embeddings = nn.ModuleList(nn.Embedding(c, width) for c in cardinalities)
        self.numeric = PeriodicEmbedding(n_numeric, width=width)
        n = width * (n_numeric + len(cardinalities))
        self.gflu = GFLU(n)
        self.head = nn.Sequential(nn.LayerNorm(n), nn.Linear(n, 24), nn.SiLU(), nn.Linear(24, n_classes))

    def forward(self, numeric, category):
        columns = category.long().unbind(1)
        x = [self.numeric(numeric)] + [e(c) for e, c in zip(self.embeddings, columns)]
        return self.head(self.gflu(torch.cat(x, 1)))


class Nesterov(torch.optim.Optimizer):
    """Momentum that holds steps instead of gradients, so that a change of the rate acts on new gradients only."""

    def __init__(self, params, lr, momentum=0.875, weight_decay=0.0):
        super().__init__(params, dict(lr=lr, momentum=momentum, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            lr, mu = group["lr"], group["momentum"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["velocity"] = torch.zeros_like(p)
                move = -lr * p.grad
                p.mul_(1 - lr * group["weight_decay"])
                state["velocity"].mul_(mu).add_(move)
                p.add_(state["velocity"], alpha=mu).add_(move)
        return loss


def optimizer(parameters, start=1 / 64, peak=1 / 16, floor=1 / 16, warmup=8, total=60):
    parameters = list(parameters)
    sgd = Nesterov(
        [
            {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": 1 / 64},
            {"params": [p for p in parameters if p.ndim < 2]},
        ],
        lr=peak,
    )

    def rate(n):
        if n < warmup:
            return (start + (peak - start) * n / warmup) / peak
        done = min(n - warmup, total) / total
        return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * done))

    return sgd, torch.optim.lr_scheduler.LambdaLR(sgd, rate)


def build():
    return Gandalf()
