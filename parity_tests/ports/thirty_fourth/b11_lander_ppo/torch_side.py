import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Categorical
from torch.nn.utils import clip_grad_norm_


class Agent(nn.Module):
    def __init__(self, observations=8, actions=4, hidden=24):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(observations, hidden),
            nn.Tanh(),
            nn.RMSNorm(hidden, eps=1e-6),
            nn.Linear(hidden, hidden),
            nn.Tanh(),
            nn.RMSNorm(hidden, eps=1e-6),
        )
        self.policy = nn.Linear(hidden, actions)
        self.value = nn.Linear(hidden, 1)
        nn.init.orthogonal_(self.policy.weight, 0.1)

    def forward(self, observation):
        h = self.body(observation)
        return {"logits": self.policy(h), "value": self.value(h).squeeze(-1)}


def step(model, batch, clip=0.2, value_coef=0.5, entropy_coef=0.01):
    observation, rollout = batch
    action, old_log_prob, advantage, returns = rollout.unbind(1)
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)

    out = model(observation)
    policy = Categorical(logits=out["logits"])
    ratio = (policy.log_prob(action) - old_log_prob).exp()
    policy_loss = -torch.min(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage).mean()
    return (
        policy_loss + value_coef * F.mse_loss(out["value"], returns) - entropy_coef * policy.entropy().mean()
    )


class ClippedSGD(torch.optim.SGD):
    """SGD that clips the gradients before it steps."""

    def __init__(self, params, max_norm=0.5, **kwargs):
        super().__init__(params, **kwargs)
        self.max_norm = max_norm

    def step(self, closure=None):
        clip_grad_norm_([p for group in self.param_groups for p in group["params"]], self.max_norm)
        return super().step(closure)


def make_optimizer(parameters):
    decay, no_decay = [], []
    for p in parameters:
        (decay if p.ndim >= 2 else no_decay).append(p)
    optimizer = ClippedSGD(
        [{"params": decay, "weight_decay": 1e-2}, {"params": no_decay}], max_norm=0.5, lr=0.05
    )
    scheduler = torch.optim.lr_scheduler.LinearLR(
        optimizer, start_factor=1.0, end_factor=0.005, total_iters=20
    )
    return optimizer, scheduler


def build():
    return Agent()
