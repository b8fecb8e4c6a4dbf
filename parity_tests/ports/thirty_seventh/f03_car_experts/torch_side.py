import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class SparseMoE(nn.Module):
    """All experts stacked in one tensor; gates are the softmax over the logits of the chosen k only."""

    def __init__(self, d, experts=4, k=2, hidden=16, units=8):
        super().__init__()
        self.k, self.n = k, experts
        self.router = nn.Linear(d, experts, bias=False)
        self.w1 = nn.Parameter(torch.randn(experts, d, hidden) / math.sqrt(d))
        self.b1 = nn.Parameter(torch.zeros(experts, hidden))
        self.w2 = nn.Parameter(torch.randn(experts, hidden, units) / math.sqrt(hidden))
        self.b2 = nn.Parameter(torch.zeros(experts, units))

    def forward(self, x):
        logits = self.router(x)
        top, index = logits.topk(self.k, dim=-1)
        gates = torch.zeros_like(logits).scatter(1, index, top.softmax(-1))
        h = F.silu(torch.einsum("bd,edh->beh", x, self.w1) + self.b1)
        y = torch.einsum("beh,ehu->beu", h, self.w2) + self.b2
        load = F.one_hot(index, self.n).to(x.dtype).mean(dim=(0, 1))
        self.balance = self.n * torch.dot(load, logits.softmax(-1).mean(0))
        return (gates.unsqueeze(-1) * y).sum(1)


class CarPrice(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(10, 12)
        self.moe = SparseMoE(12)
        self.head = nn.Linear(12 + 8, 1)

    def forward(self, x):
        h = F.relu(self.stem(x))
        return self.head(torch.cat([h, self.moe(h)], dim=-1))


def training_step(model, batch):
    x, y = batch
    e = model(x) - y
    a = e.abs()
    log_cosh = a + torch.log1p(torch.exp(-2 * a)) - math.log(2)
    return log_cosh.mean() + 0.05 * model.moe.balance


def build():
    return CarPrice()
