import torch
from torch import nn
from torch.optim import Optimizer


class TimeNorm(nn.Module):
    def __init__(self, c, eps=1e-4):
        super().__init__()
        self.g = nn.Parameter(torch.ones(c))
        self.b = nn.Parameter(torch.zeros(c))
        self.eps = eps

    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        var = x.var(-1, keepdim=True)
        return (x - mean) / torch.sqrt(var + self.eps) * self.g[:, None] + self.b[:, None]


class RhythmNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv1d(2, 8, 5, padding=2, padding_mode="circular", bias=False),
            TimeNorm(8),
            nn.SiLU(),
            nn.Conv1d(8, 10, 5, padding=4, dilation=2, padding_mode="circular", bias=False),
            TimeNorm(10),
            nn.SiLU(),
        )
        self.attention = nn.Sequential(nn.Conv1d(10, 6, 1), nn.Tanh(), nn.Conv1d(6, 1, 1, bias=False))
        self.classifier = nn.Linear(20, 3)

    def forward(self, x):
        h = self.features(x.transpose(1, 2))
        a = self.attention(h).softmax(dim=-1)
        mean = (a * h).sum(-1)
        std = (((h - mean.unsqueeze(-1)) ** 2).mean(-1) + 1e-5).sqrt()
        return self.classifier(torch.cat([mean, std], 1))


class LARS(Optimizer):
    def __init__(self, params, lr=0.5, momentum=0.9, eta=0.1, weight_decay=0.02):
        super().__init__(params, dict(lr=lr, momentum=momentum, eta=eta, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            wd, eta = group["weight_decay"], group["eta"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                update = p.grad.add(p, alpha=wd)
                if p.ndim > 1:
                    w_norm, g_norm = p.norm(), p.grad.norm()
                    update = update * (eta * w_norm / (g_norm + wd * w_norm + 1e-9))
                buf = self.state[p].setdefault("momentum_buffer", torch.zeros_like(p))
                buf.mul_(group["momentum"]).add_(update, alpha=group["lr"])
                p.sub_(buf)
        return loss


def make_optimizer(params):
    return LARS(params)


def build():
    return RhythmNet()
