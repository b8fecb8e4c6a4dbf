"""Neural point process of outages: log-normal mixture, causes, right-censored last interval."""

import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Categorical

CAUSES, MIX = 5, 6
LOG_MEAN, LOG_STD = 2.9, 1.7


class History(nn.Module):
    """LSTM over the outages with a single bias"""

    def __init__(self, width, units):
        super().__init__()
        self.units = units
        self.inward = nn.Linear(width, 4 * units)
        self.recur = nn.Linear(units, 4 * units, bias=False)

    def forward(self, x):
        h = c = x.new_zeros(x.shape[0], self.units)
        states = []
        for step in self.inward(x).unbind(1):
            i, f, g, o = (step + self.recur(h)).view(-1, 4, self.units).unbind(1)
            c = torch.addcmul(f.sigmoid() * c, i.sigmoid(), g.tanh())
            h = o.sigmoid() * c.tanh()
            states.append(h)
        return torch.stack(states, 1)


class OutageProcess(nn.Module):
    def __init__(self):
        super().__init__()
        self.cause = nn.Embedding(CAUSES + 1, 8)
        self.history = History(9, 24)
        self.norm = nn.LayerNorm(24, eps=1e-3)
        self.gap_head = nn.Linear(24, 3 * MIX)
        self.cause_head = nn.Linear(24, CAUSES)

    def forward(self, gaps, cause):
        x = (gaps.log() - LOG_MEAN) / LOG_STD
        h = self.norm(self.history(torch.cat([x[..., None], self.cause(cause.long())], -1)))
        return torch.cat([self.gap_head(h), self.cause_head(h)], -1)


def loss(outputs, targets):
    gap, status, cause = targets.unbind(-1)
    mix, marks = outputs.split([3 * MIX, CAUSES], -1)
    weight, centre, spread = mix.unflatten(-1, (3, MIX)).unbind(-2)
    weight = weight.log_softmax(-1)
    sigma = F.softplus(spread) + 0.1
    x = (gap.log() - LOG_MEAN) / LOG_STD
    z = (x.unsqueeze(-1) - centre) / sigma

    event, censored = status == 1, status == 0
    density = (weight - z.square() / 2 - (sigma * math.sqrt(2 * math.pi)).log()).logsumexp(-1)
    density = density - (gap * LOG_STD).log()
    marks = Categorical(logits=marks).log_prob((cause.long() - 1).clamp(min=0))
    survival = (weight + torch.special.log_ndtr(-z)).logsumexp(-1)

    zero = outputs.new_zeros(())
    total = torch.where(event, density + marks, zero) + torch.where(censored, survival, zero)
    return -(total.sum(1) / event.sum(1)).mean()


class AdaBelief(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.0, max_norm=1.0):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))
        self.max_norm = max_norm

    @torch.no_grad()
    def step(self, closure=None):
        value = None
        if closure is not None:
            with torch.enable_grad():
                value = closure()
        live = [(p, group) for group in self.param_groups for p in group["params"] if p.grad is not None]
        norm = torch.stack([p.grad.norm() for p, _ in live]).norm()
        shrink = self.max_norm / norm.clamp(min=self.max_norm)
        for p, group in live:
            (b1, b2), eps, lr = group["betas"], group["eps"], group["lr"]
            g = p.grad * shrink
            state = self.state[p]
            if not state:
                state.update(n=0, mean=torch.zeros_like(p), belief=torch.zeros_like(p))
            state["n"] += 1
            mean, belief, n = state["mean"], state["belief"], state["n"]
            p.mul_(1 - lr * group["weight_decay"])
            mean.mul_(b1).add_(g, alpha=1 - b1)
            surprise = g - mean
            belief.mul_(b2).addcmul_(surprise, surprise, value=1 - b2).add_(eps)
            bottom = (belief / (1 - b2**n)).sqrt_().add_(eps)
            p.addcdiv_(mean, bottom, value=-lr / (1 - b1**n))
        return value


def optimizer(params):
    params = list(params)
    opt = AdaBelief(
        [
            {"params": [p for p in params if p.ndim > 1], "weight_decay": 0.02},
            {"params": [p for p in params if p.ndim == 1]},
        ],
        lr=4e-3,
    )
    warm = 6.0
    schedule = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda n: min((n + 1) / warm, math.sqrt(warm / (n + 1)))
    )
    return opt, schedule


def build():
    return OutageProcess()
