import numpy as np
import scipy.linalg
import torch
from torch import nn
from torch.distributions import Independent, Normal


class Affine(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.log_scale = nn.Parameter(torch.full((d,), -0.35))
        self.bias = nn.Parameter(torch.zeros(d))

    def forward(self, x, logp):
        return (x + self.bias).mul(self.log_scale.exp()), logp + self.log_scale.sum()


class LUMix(nn.Module):
    def __init__(self, d, seed):
        super().__init__()
        q, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(d, d)))
        p, l, u = (torch.from_numpy(a).float() for a in scipy.linalg.lu(q))
        self.register_buffer("perm", p)
        self.register_buffer("sign", u.diagonal().sign().clone())
        self.l = nn.Parameter(l)
        self.u = nn.Parameter(u.triu(1))
        self.log_s = nn.Parameter(u.diagonal().abs().log())

    def forward(self, x, logp):
        upper = self.u.triu(1) + torch.diag_embed(self.sign * self.log_s.exp())
        y = x @ self.perm
        y = y + y @ self.l.tril(-1)
        return y @ upper, logp + self.log_s.sum()


class AffineCoupling(nn.Module):
    def __init__(self, d, cond, moved, width=24):
        super().__init__()
        self.cond, self.moved = cond, moved
        self.body = nn.Sequential(nn.Linear(d // 2, width), nn.GELU(approximate="none"))
        self.log_s = nn.Linear(width, d // 2)
        self.shift = nn.Linear(width, d // 2)

    def forward(self, x, logp):
        h = self.body(x[:, self.cond])
        s = 1.5 * torch.tanh(self.log_s(h) / 1.5)
        out = x.clone()
        out[:, self.moved] = torch.addcmul(self.shift(h), x[:, self.moved], s.exp())
        return out, logp + s.sum(1)


class ClassFlow(nn.Module):
    def __init__(self, d=6, classes=3, steps=3):
        super().__init__()
        lo, hi = slice(0, d // 2), slice(d // 2, d)
        self.mixes = nn.ModuleList([LUMix(d, 40 + i) for i in range(steps)])
        self.scales = nn.ModuleList([Affine(d) for _ in range(steps)])
        self.couplings = nn.ModuleList(
            [AffineCoupling(d, *((lo, hi), (hi, lo))[i % 2]) for i in range(steps)]
        )
        self.mu = nn.Parameter(0.3 * torch.randn(classes, d))
        self.log_sigma = nn.Parameter(torch.zeros(classes, d))

    def forward(self, x):
        logp = x.new_zeros(len(x))
        for parts in zip(self.scales, self.mixes, self.couplings):
            for f in parts:
                x, logp = f(x, logp)
        base = Independent(Normal(self.mu, self.log_sigma.exp()), 1)
        return base.log_prob(x.unsqueeze(1)) + logp[:, None]


def build():
    return ClassFlow()


def step(model, batch):
    x, y = (batch["x"], batch["y"]) if isinstance(batch, dict) else batch[:2]
    ll = model(x)
    return -ll.gather(1, y.long().view(-1, 1)).mean().div(x.shape[1])
