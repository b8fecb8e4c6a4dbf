import torch
import torch.nn as nn
import torch.nn.functional as F

K = 33


class Wavelets(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a = nn.Parameter(torch.linspace(0.6, 2.0, n))
        self.b = nn.Parameter(torch.empty(n).uniform_(-0.8, 0.8))
        self.amp = nn.Parameter(torch.ones(n))
        self.register_buffer("t", torch.linspace(-4, 4, K))
        self.register_buffer("win", torch.hann_window(K))

    def forward(self, x):  # B, S, L
        u = (self.t - self.b[:, None]) / self.a[:, None]
        w = self.amp[:, None] * torch.exp(-u.pow(2) / 4) * torch.cos(torch.pi * u) * self.win
        B, S, L = x.shape
        x = F.pad(x.reshape(B * S, 1, L), (15, 16))
        return F.conv1d(x, w.unsqueeze(1), stride=2).reshape(B, S * w.shape[0], L // 2)


class SE(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.fc = nn.Sequential(nn.Linear(c, c // 4), nn.ReLU(), nn.Linear(c // 4, c), nn.Hardsigmoid())

    def forward(self, x):
        return x * self.fc(x.mean(-1)).unsqueeze(-1)


class BearingNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.front = Wavelets(8)
        bn = dict(eps=1e-3, momentum=0.01)
        self.trunk = nn.Sequential(
            nn.BatchNorm1d(16, **bn),
            nn.Conv1d(16, 16, 5, padding=2),
            nn.ELU(),
            nn.AvgPool1d(2),
            nn.ConstantPad1d((8, 0), 0.0),
            nn.Conv1d(16, 24, 3, dilation=4, bias=False),
            nn.BatchNorm1d(24, **bn),
            nn.SiLU(),
            SE(24),
        )
        self.cls = nn.Sequential(nn.Linear(48, 24), nn.ReLU(), nn.Linear(24, 4))

    def forward(self, signal):
        x = self.front(signal.transpose(1, 2))
        x = self.trunk(torch.log1p(x * x))
        return self.cls(torch.cat([x.mean(-1), x.amax(-1)], 1))


class SGDClipped(torch.optim.SGD):
    """SGD that clips what it is given to `clipnorm` before the step."""

    def __init__(self, params, clipnorm, **kw):
        super().__init__(params, **kw)
        self.clipnorm = clipnorm

    @torch.no_grad()
    def step(self, closure=None):
        grads = [p.grad for g in self.param_groups for p in g["params"] if p.grad is not None]
        norm = torch.stack([g.norm() for g in grads]).norm()
        for g in grads:
            g.mul_(self.clipnorm / norm.clamp(min=self.clipnorm))
        return super().step(closure)


def make_optimizer(params):
    return SGDClipped(params, clipnorm=0.2, lr=0.05, momentum=0.9)


def build():
    return BearingNet()
