import math

import torch
from torch import nn
from torch.nn import functional as F


def same_pad(n, k, s):
    total = max((math.ceil(n / s) - 1) * s + k - n, 0)
    return total // 2, total - total // 2


def batch_norm(c):
    return nn.BatchNorm1d(c, momentum=0.1)


class SEGate(nn.Sequential):
    def __init__(self, c, ratio=4):
        super().__init__(
            nn.AdaptiveAvgPool1d(1),
            nn.Conv1d(c, c // ratio, 1),
            nn.ReLU(),
            nn.Conv1d(c // ratio, c, 1),
            nn.Sigmoid(),
        )

    def forward(self, x):
        return super().forward(x) * x


class PreActUnit(nn.Module):
    def __init__(self, cin, cout, k, stride=1, p=0.1):
        super().__init__()
        self.k, self.stride = k, stride
        self.project = nn.Conv1d(cin, cout, 1) if cin != cout else None
        self.pre = nn.Sequential(batch_norm(cin), nn.ReLU())
        self.conv_in = nn.Conv1d(cin, cout, k, stride, bias=False)
        self.rest = nn.Sequential(
            batch_norm(cout),
            nn.ReLU(),
            nn.Dropout1d(p),
            nn.Conv1d(cout, cout, k, padding=k // 2, bias=False),
            SEGate(cout),
        )

    def blur(self, a):
        # the mean of the samples that are there, as TensorFlow's SAME pooling
        lo, hi = same_pad(a.shape[-1], 3, 2)
        k = a.new_ones(1, 1, 3)
        count = F.conv1d(F.pad(torch.ones_like(a[:1, :1]), (lo, hi)), k, stride=2)
        total = F.pad(a, (lo, hi)).unfold(-1, 3, 2).sum(-1)
        return total / count

    def forward(self, x):
        a = self.pre(x)
        y = self.rest(self.conv_in(F.pad(a, same_pad(a.shape[-1], self.k, self.stride))))
        return y + (x if self.project is None else self.project(self.blur(a)))


class ECGAge(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv1d(4, 12, 9, stride=2, bias=False)
        self.stages = nn.Sequential(
            PreActUnit(12, 12, 7),
            PreActUnit(12, 16, 7, 2),
            PreActUnit(16, 24, 5, 2),
            batch_norm(24),
            nn.ReLU(),
        )
        self.fc = nn.Linear(24 + 2, 16)
        self.gauss = nn.ModuleList([nn.Linear(16, 1), nn.Linear(16, 1)])

    def forward(self, ecg, sex):
        std, mean = torch.std_mean(ecg, dim=1, keepdim=True, correction=0)
        x = ((ecg - mean) / (std + 1e-3)).mT
        x = self.stem(F.pad(x, same_pad(256, 9, 2)))
        x = F.max_pool1d(F.pad(x, same_pad(x.shape[-1], 3, 2), value=float("-inf")), 3, 2)
        x = self.stages(x).mean(-1)
        x = torch.cat([x, F.one_hot(sex.long(), 2).to(x.dtype)], 1)
        x = F.mish(self.fc(x))
        mu, raw = (head(x) for head in self.gauss)
        return torch.cat([mu, F.softplus(raw, threshold=40)], 1)


def beta_nll(out, age):
    mu, var = out[:, :1], out[:, 1:] + 1e-3
    z = (age - 55.0) / 17.0
    nll = F.gaussian_nll_loss(mu, z, var, reduction="none", eps=1e-9)
    return (nll * var.detach().sqrt()).mean()


class NesterovLR(torch.optim.Optimizer):
    """SGD whose velocity holds the learning rate of the step that made it"""

    def __init__(self, params, lr, momentum=0.9):
        super().__init__(params, dict(lr=lr, momentum=momentum))

    @torch.no_grad()
    def step(self, closure=None):
        loss = None if closure is None else torch.enable_grad()(closure)()
        for group in self.param_groups:
            lr, mom = group["lr"], group["momentum"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                st = self.state[p]
                if not st:
                    st["v"] = torch.zeros_like(p)
                v = st["v"].mul_(mom).sub_(p.grad, alpha=lr)
                p.add_(v, alpha=mom).sub_(p.grad, alpha=lr)
        return loss


def warm_cosine(step, base=0.005, start=5e-4, warm=10, total=40, floor=0.05):
    if step < warm:
        return (start + (base - start) * step / warm) / base
    x = min(step - warm, total) / total
    return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * x))


def make_optimizer(params):
    opt = NesterovLR(params, lr=0.005)
    return opt, torch.optim.lr_scheduler.LambdaLR(opt, warm_cosine)


def build():
    return ECGAge()
