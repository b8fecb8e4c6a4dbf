"""Probabilistic river-flow forecast (gated TCN)."""

import torch
import torch.nn.functional as F
from torch import nn

QUANTILES = (0.1, 0.5, 0.9)


class GatedBlock(nn.Module):
    def __init__(self, channels, dilation):
        super().__init__()
        self.dilation = dilation
        self.filter = nn.Conv1d(channels, channels, 2, dilation=dilation)
        self.gate = nn.Conv1d(channels, channels, 2, dilation=dilation)
        self.mix = nn.Conv1d(channels, channels, 1)

    def forward(self, x):
        past = F.pad(x, (self.dilation, 0))
        return self.mix(torch.tanh(self.filter(past)) * torch.sigmoid(self.gate(past)))


class River(nn.Module):
    def __init__(self, series=3, channels=12, horizon=3, blocks=4):
        super().__init__()
        self.horizon = horizon
        self.lift = nn.Conv1d(series, channels, 1)
        self.blocks = nn.ModuleList(GatedBlock(channels, 2**i) for i in range(blocks))
        self.quantiles = nn.Linear(channels, horizon * len(QUANTILES))

    def forward(self, past):
        mean = past.mean(1, keepdim=True)
        std = (past.var(1, unbiased=False, keepdim=True) + 1e-5).sqrt()
        x = self.lift(((past - mean) / std).transpose(1, 2))
        total = 0
        for block in self.blocks:
            s = block(x)
            x, total = x + s, total + s
        q = self.quantiles(F.relu(total[..., -1])).unflatten(1, (self.horizon, -1))
        return q * std[:, :, :1] + mean[:, :, :1]


def build():
    return River()


def pinball(pred, target):
    tau = pred.new_tensor(QUANTILES)
    under = F.relu(target.unsqueeze(-1) - pred)
    over = F.relu(pred - target.unsqueeze(-1))
    return (tau * under + (1 - tau) * over).mean()


class RMSpropTF(torch.optim.Optimizer):
    """RMSprop as TensorFlow defines it: epsilon inside the square root."""

    def __init__(self, params, lr=2**-7, rho=0.9, eps=1e-6):
        super().__init__(params, dict(lr=lr, rho=rho, eps=eps))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                avg = self.state[p].setdefault("square_avg", torch.zeros_like(p))
                avg.mul_(group["rho"]).addcmul_(p.grad, p.grad, value=1 - group["rho"])
                p.addcdiv_(p.grad, (avg + group["eps"]).sqrt(), value=-group["lr"])


def optimizer(params):
    opt = RMSpropTF(params)
    return opt, torch.optim.lr_scheduler.StepLR(opt, step_size=10, gamma=0.5)
