import math

import torch
from torch import nn
from torch.nn import functional as F


class BN(nn.BatchNorm1d):
    def __init__(self, n):
        super().__init__(n, eps=1e-3, momentum=0.05)

    def forward(self, x):
        if self.training:
            with torch.no_grad():
                self.running_mean += self.momentum * (x.mean(0) - self.running_mean)
                self.running_var += self.momentum * (x.var(0, correction=0) - self.running_var)
            return F.batch_norm(x, None, None, self.weight, self.bias, True, 0.0, self.eps)
        return super().forward(x)


def sparsemax(z):
    s, _ = z.sort(dim=-1, descending=True)
    cssv = s.cumsum(-1) - 1
    k = torch.arange(1, z.shape[-1] + 1, device=z.device, dtype=z.dtype)
    support = (k * s > cssv).sum(-1, keepdim=True)
    tau = cssv.gather(-1, support - 1) / support
    return (z - tau).clamp(min=0)


class Transformer(nn.Module):
    """The shared linear layers are passed to forward; only what belongs to the step lives here."""

    def __init__(self, width):
        super().__init__()
        self.norms = nn.ModuleList(BN(2 * width) for _ in range(3))
        self.fc = nn.Linear(width, 2 * width, bias=False)

    def forward(self, x, shared):
        h = None
        for fc, norm in zip([*shared, self.fc], self.norms):
            y = F.glu(norm(fc(x if h is None else h)), dim=1)
            h = y if h is None else (h + y) * math.sqrt(0.5)
        return h


class Attentive(nn.Module):
    def __init__(self, n_a, columns):
        super().__init__()
        self.fc = nn.Linear(n_a, columns, bias=False)
        self.bn = BN(columns)

    def forward(self, a, prior):
        return sparsemax(self.bn(self.fc(a)) * prior)


class Net(nn.Module):
    def __init__(self, columns=10, n_d=8, n_a=8, n_steps=3, gamma=1.4, classes=3):
        super().__init__()
        self.sizes, self.gamma = (n_d, n_a), gamma
        width = n_d + n_a
        self.bn = BN(columns)
        self.shared = nn.ModuleList(
            [nn.Linear(columns, 2 * width, bias=False), nn.Linear(width, 2 * width, bias=False)]
        )
        self.initial = Transformer(width)
        self.steps = nn.ModuleList(Transformer(width) for _ in range(n_steps))
        self.masks = nn.ModuleList(Attentive(n_a, columns) for _ in range(n_steps))
        self.fc = nn.Linear(n_d, classes, bias=False)

    def forward(self, x):
        x = self.bn(x)
        _, a = self.initial(x, self.shared).split(self.sizes, dim=1)
        prior, decisions = torch.ones_like(x), []
        for step, attentive in zip(self.steps, self.masks):
            m = attentive(a, prior)
            prior = prior * (self.gamma - m)
            d, a = step(x * m, self.shared).split(self.sizes, dim=1)
            decisions.append(d.relu())
        return self.fc(torch.stack(decisions).sum(0))
