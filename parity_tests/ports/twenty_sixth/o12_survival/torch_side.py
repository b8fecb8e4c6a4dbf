import math

import torch
import torch.nn.functional as F
from torch import nn

LR, MOMENTUM, DECAY, EVERY, CLIP = 0.05, 0.9, 0.8, 10, 0.5


class StepDecayNAG(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, dict(lr=lr))
        self.updates = 0

    @torch.no_grad()
    def step(self, closure=None):
        params = [p for g in self.param_groups for p in g["params"] if p.grad is not None]
        norm = math.sqrt(sum(float(p.grad.pow(2).sum()) for p in params))
        shrink = CLIP / norm if norm > CLIP else 1.0
        decay = DECAY ** (self.updates // EVERY)
        self.updates += 1
        for group in self.param_groups:
            rate = group["lr"] * decay
            for p in group["params"]:
                if p.grad is None:
                    continue
                delta = p.grad * (shrink * rate)
                v = self.state[p].setdefault("velocity", torch.zeros_like(p))
                v.mul_(MOMENTUM).sub_(delta)
                p.add_(v, alpha=MOMENTUM).sub_(delta)


def make(params):
    return StepDecayNAG(params, lr=LR)


def cox_loss(output, target):
    order = torch.argsort(target[:, 0], descending=True)
    risk, event = output[order, 0], target[order, 1]
    log_denominator = torch.logcumsumexp(risk, dim=0)
    return ((log_denominator - risk) * event).sum() / event.sum()


class Norm(nn.Module):
    def __init__(self, n, eps=1e-3):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(n))
        self.beta = nn.Parameter(torch.zeros(n))
        self.eps = eps

    def forward(self, x):
        c = x - x.mean(-1, keepdim=True)
        return self.gamma * c / torch.sqrt((c * c).mean(-1, keepdim=True) + self.eps) + self.beta


class DeepSurv(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.ln1 = nn.Linear(11, 24), Norm(24)
        self.fc2, self.ln2 = nn.Linear(24, 16), Norm(16)
        self.deep = nn.Linear(16, 1, bias=False)
        self.linear = nn.Linear(11, 1, bias=False)

    def forward(self, x):
        h = F.softplus(self.ln1(self.fc1(x)))
        h = F.softplus(self.ln2(self.fc2(h)))
        return self.linear(x) + self.deep(h)


def build():
    return DeepSurv()
