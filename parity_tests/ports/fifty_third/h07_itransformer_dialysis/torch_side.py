import math

import torch
from torch import nn


class ITransformer(nn.Module):
    """Signals are the tokens, their history is the feature vector."""

    def __init__(self, lookback=32, horizon=8, dim=24, heads=4, depth=2):
        super().__init__()
        self.embed = nn.Linear(lookback, dim)
        self.encoder = nn.ModuleList(
            nn.TransformerEncoderLayer(
                dim, heads, dim_feedforward=2 * dim, dropout=0.0, activation="gelu", batch_first=True
            )
            for _ in range(depth)
        )
        self.head = nn.Linear(dim, horizon)

    def forward(self, window):
        series = window.mT  # (B, signals, time)
        var, mean = torch.var_mean(series, dim=-1, correction=0, keepdim=True)
        std = (var + 1e-5).sqrt()
        tokens = self.embed((series - mean) / std)
        for layer in self.encoder:
            tokens = layer(tokens)
        return (self.head(tokens) * std + mean).mT


class AdaBelief(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-10, weight_decay=1e-2):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            lr, eps = group["lr"], group["eps"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["step"] = 0
                    state["exp_avg"] = torch.zeros_like(p)
                    state["exp_avg_var"] = torch.zeros_like(p)
                state["step"] += 1
                m, v = state["exp_avg"], state["exp_avg_var"]
                p.mul_(1 - lr * group["weight_decay"])

                residual = p.grad - m
                m.lerp_(p.grad, 1 - beta1)
                v.mul_(beta2).addcmul_(residual, residual, value=1 - beta2).add_(eps)

                c1 = 1 - beta1 ** state["step"]
                c2 = 1 - beta2 ** state["step"]
                p.addcdiv_(m, (v / c2).sqrt().add_(eps), value=-lr / c1)
        return loss


def optimizer(params, peak=2e-3, warmup=8, total=50, floor=0.05):
    opt = AdaBelief(params, lr=peak)

    def factor(step):
        if step < warmup:
            return (step + 1) / warmup
        done = min((step - warmup) / total, 1.0)
        return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * done))

    return opt, torch.optim.lr_scheduler.LambdaLR(opt, factor)


def build():
    return ITransformer()
