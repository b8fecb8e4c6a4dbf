import torch
import torch.nn.functional as F
from torch import nn


class DuelingDQN(nn.Module):
    frames = 4

    def __init__(self, actions=5):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(self.frames, 8, 4, stride=2), nn.ReLU(), nn.Conv2d(8, 12, 3), nn.ReLU()
        )
        self.norm = nn.LayerNorm(3 * 3 * 12, eps=1e-3)
        self.trunk = nn.Sequential(nn.Linear(3 * 3 * 12, 32), nn.ReLU())
        self.value = nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 1))
        self.advantage = nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, actions))

    def forward(self, obs):
        if obs.shape[1] != self.frames:  # the replay buffer stores frames last
            obs = obs.permute(0, 3, 1, 2)
        x = obs.to(self.norm.weight.dtype) / 256
        x = self.features(x).movedim(1, -1).flatten(1)
        x = self.trunk(self.norm(x))
        advantage = self.advantage(x)
        return self.value(x) + (advantage - advantage.mean(1, keepdim=True))


def td_loss(q, target):
    action, value = target[:, :1].long(), target[:, 1]
    return F.smooth_l1_loss(q.gather(1, action).squeeze(1), value)


class RMSpropTF(torch.optim.Optimizer):
    """Centered RMSprop as TF has it: epsilon under the root, rate inside the momentum buffer."""

    def __init__(self, params, lr, alpha=0.95, momentum=0.9, eps=1e-2, clip_value=None):
        super().__init__(params, dict(lr=lr, alpha=alpha, momentum=momentum, eps=eps))
        self.clip_value = clip_value

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            if self.clip_value is not None:
                nn.utils.clip_grad_value_(group["params"], self.clip_value)
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    for k in ("square", "mean", "buf"):
                        state[k] = torch.zeros_like(p)
                state["square"].lerp_(p.grad.square(), 1 - group["alpha"])
                state["mean"].lerp_(p.grad, 1 - group["alpha"])
                denom = (state["square"] - state["mean"].square() + group["eps"]).sqrt()
                state["buf"].mul_(group["momentum"]).addcdiv_(p.grad, denom, value=group["lr"])
                p.sub_(state["buf"])


def optimizer(params):
    return RMSpropTF(params, lr=1e-3, clip_value=0.1)


def build():
    return DuelingDQN()
