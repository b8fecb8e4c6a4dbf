import torch
from torch import nn


class Field(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim + 1, hidden), nn.Tanh(), nn.Linear(hidden, dim))

    def forward(self, t, h):
        return self.net(torch.cat([h, h.new_full((len(h), 1), t)], dim=1))


def rk4(f, t, h, dt):
    a = f(t, h)
    b = f(t + 0.5 * dt, torch.add(h, a, alpha=0.5 * dt))
    c = f(t + 0.5 * dt, torch.add(h, b, alpha=0.5 * dt))
    d = f(t + dt, torch.add(h, c, alpha=dt))
    return h + (a + 2 * (b + c) + d) * (dt / 6)


class Net(nn.Module):
    def __init__(self, dim=6, hidden=18, steps=6, classes=3):
        super().__init__()
        self.encode = nn.Linear(4, dim)
        self.field = Field(dim, hidden)
        self.decode = nn.Linear(dim, classes)
        self.times = [i / steps for i in range(steps)]

    def forward(self, x):
        h = self.encode(x)
        for t in self.times:
            h = rk4(self.field, t, h, 1 / len(self.times))
        return self.decode(h)


class AdamW(torch.optim.Optimizer):
    """With epsilon added to the square root of the uncorrected second moment."""

    def __init__(self, params, lr=0.0078125, betas=(0.9, 0.999), eps=1e-7, weight_decay=0.0625):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            (b1, b2), lr = group["betas"], group["lr"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["step"] = 0
                    state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(p), torch.zeros_like(p)
                state["step"] += 1
                t, m, v = state["step"], state["exp_avg"], state["exp_avg_sq"]
                p.mul_(1 - lr * group["weight_decay"])
                m.lerp_(p.grad, 1 - b1)
                v.lerp_(p.grad.square(), 1 - b2)
                p.addcdiv_(m, v.sqrt() + group["eps"], value=-lr * (1 - b2**t) ** 0.5 / (1 - b1**t))


def optimizer(model):
    params = list(model.parameters() if isinstance(model, nn.Module) else model)
    return AdamW(
        [
            {"params": [p for p in params if p.ndim > 1]},
            {"params": [p for p in params if p.ndim < 2], "weight_decay": 0.0},
        ]
    )
