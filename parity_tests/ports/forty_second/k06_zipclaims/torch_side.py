import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class Claims(nn.Module):
    def __init__(self, regions=12, covers=9):
        super().__init__()
        const = lambda n, v: self.register_buffer(n, torch.tensor(v))
        const("center", [44.0, 8.5, 13.2, 9.1])
        const("scale", [v**-0.5 for v in (196.0, 30.0, 0.4, 0.5)])
        const("knots", [22.0, 26.0, 32.0, 45.0, 60.0, 75.0])
        self.cover = nn.EmbeddingBag(covers, 6, mode="mean")
        self.region = nn.Embedding(regions, 5)
        self.trunk = nn.Linear(4 + 6 + 5 + 6, 32)
        self.drop = nn.Dropout(0.1)
        self.glu = nn.Linear(32, 64)  # values, then gates
        self.norm = nn.LayerNorm(32)
        self.zero = nn.Sequential(nn.Linear(33, 12), nn.Tanh(), nn.Linear(12, 1))
        self.rate = nn.Sequential(nn.Linear(32, 16), nn.Softplus(), nn.Linear(16, 1))
        nn.init.constant_(self.rate[-1].bias, -1.0)

    def forward(self, numeric, region, covers, exposure):
        age = numeric[:, 0]
        hinge = torch.stack([F.relu(age - k) for k in self.knots], 1) * 0.05
        parts = [
            (numeric - self.center) * self.scale,
            hinge,
            self.region(region.long()),
            self.cover(covers.long()),
        ]
        x = self.drop(F.selu(self.trunk(torch.cat(parts, 1))))
        x = self.norm(x + F.glu(self.glu(x), dim=1))
        zero = self.zero(torch.cat([x, exposure], 1))
        return torch.cat([self.rate(x) + exposure.log(), zero], 1)


def zip_nll(out, y):
    y = y.reshape(-1).to(out.dtype)
    log_mu, logit = out.unbind(1)
    log_pi, log_not = F.logsigmoid(logit), F.logsigmoid(-logit)
    poisson = -F.poisson_nll_loss(log_mu, y, log_input=True, full=False, reduction="none") - torch.lgamma(
        y + 1
    )
    ll = torch.where(y > 0, log_not + poisson, torch.logaddexp(log_pi, log_not - log_mu.exp()))
    return -ll.mean()


class KerasNesterov(torch.optim.Optimizer):
    """Keeps the velocity with the learning rate inside, as Keras does (it matters under a schedule)."""

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
                v = self.state[p].setdefault("velocity", torch.zeros_like(p))
                v.mul_(mom).sub_(p.grad, alpha=lr)
                p.add_(v, alpha=mom).sub_(p.grad, alpha=lr)
        return loss


def optimizer(params):
    opt = KerasNesterov(params, lr=0.02)
    floor = 0.1
    cosine = lambda t: floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * min(t, 60) / 60))
    return opt, torch.optim.lr_scheduler.LambdaLR(opt, cosine)


def build():
    return Claims()
