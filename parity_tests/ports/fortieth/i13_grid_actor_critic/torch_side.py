import torch
from torch import nn
from torch.distributions import Categorical
from torch.nn import functional as F


class Agent(nn.Module):
    def __init__(self, n_actions=5):
        super().__init__()
        self.critic = nn.Sequential(nn.Linear(32, 24), nn.Tanh(), nn.Linear(24, 1))
        self.actor = nn.Sequential(nn.Linear(32, 24), nn.Tanh(), nn.Linear(24, n_actions))
        self.vision = nn.Sequential(
            nn.Conv2d(3, 12, 3, padding=1), nn.ELU(), nn.Conv2d(12, 16, 3, stride=2), nn.ELU()
        )
        self.inventory = nn.Sequential(nn.Linear(4, 8), nn.Softsign())
        self.body = nn.Sequential(nn.Linear(16 * 9 + 8, 32), nn.LayerNorm(32, eps=1e-3), nn.Tanh())

    def forward(self, grid, bag):
        seen = self.vision(grid.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        h = self.body(torch.hstack((seen.flatten(1), self.inventory(bag))))
        return {"policy": self.actor(h), "value": self.critic(h)}


def build():
    return Agent()


def policy_loss(logits, target):
    action, adv, old_logp = target.to(logits).unbind(1)
    pi = Categorical(logits=logits, validate_args=False)
    ratio = (pi.log_prob(action.long()) - old_logp).exp()
    pg = torch.max(-adv * ratio, -adv * ratio.clamp(0.8, 1.2))
    return pg.mean() - 0.01 * pi.entropy().mean()


def value_loss(value, target):
    return F.smooth_l1_loss(value, target.to(value))


class ClippedMomentum(torch.optim.Optimizer):
    """Momentum with the learning rate inside the velocity, decoupled decay, clipped gradients."""

    def __init__(self, params, lr, momentum=0.9, decay=0.0, max_norm=0.5):
        super().__init__(params, dict(lr=lr, momentum=momentum, decay=decay, max_norm=max_norm))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            norm = torch.stack([p.grad.norm() for p in params]).norm()
            coef = (group["max_norm"] / norm).clamp(max=1.0)
            for p in params:
                vel = self.state[p].setdefault("velocity", torch.zeros_like(p))
                vel.mul_(group["momentum"]).sub_(p.grad * coef * group["lr"])
                p.mul_(1 - group["lr"] * group["decay"]).add_(vel)


def make_optimizer(params):
    params = list(params)
    opt = ClippedMomentum(
        [
            {"params": [p for p in params if p.ndim > 1], "decay": 1e-2},
            {"params": [p for p in params if p.ndim <= 1], "decay": 0.0},
        ],
        lr=3e-2,
    )
    return opt, torch.optim.lr_scheduler.LinearLR(opt, start_factor=1.0, end_factor=0.1, total_iters=60)
