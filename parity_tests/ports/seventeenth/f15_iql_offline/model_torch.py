"""Implicit Q-learning in PyTorch."""

import torch
from torch import nn
from torch.nn import functional as F


def mlp(inputs, outputs, width=32):
    return nn.Sequential(
        nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, outputs)
    )


class Policy(nn.Module):
    def __init__(self, obs, action):
        super().__init__()
        self.net = mlp(obs, action)
        self.log_std = nn.Parameter(torch.full((action,), -0.5))

    def forward(self, obs):
        std = self.log_std.clamp(-5, 2).exp()
        return torch.distributions.Normal(self.net(obs).tanh(), std, validate_args=False)


class Net(nn.Module):
    def __init__(self, obs=6, action=2):
        super().__init__()
        self.policy = Policy(obs, action)
        self.value = mlp(obs, 1)
        self.critics = nn.ModuleList([mlp(obs + action, 1) for _ in range(2)])
        self.targets = nn.ModuleList([mlp(obs + action, 1) for _ in range(2)]).requires_grad_(False)

    def forward(self, obs, action, reward=None, next_obs=None, done=None):
        both = torch.cat([obs, action], dim=-1)
        return {
            "q": torch.cat([critic(both) for critic in self.critics], dim=-1),
            "target": torch.cat([target(both) for target in self.targets], dim=-1).amin(-1),
            "value": self.value(obs).squeeze(-1),
            "log_probability": self.policy(obs).log_prob(action).sum(-1),
        }


def step(model, batch, gamma=0.98, expectile=0.8, temperature=3.0):
    out = model(batch["obs"], batch["action"])
    advantage = out["target"] - out["value"]
    share = torch.where(advantage > 0, expectile, 1 - expectile)
    value_loss = (share * advantage.square()).mean()
    with torch.no_grad():
        going_on = 1 - batch["done"].flatten()
        backup = batch["reward"].flatten() + gamma * going_on * model.value(batch["next_obs"]).squeeze(-1)
        weight = (temperature * advantage).exp().clamp(max=100.0)
    q_loss = F.mse_loss(out["q"], backup.unsqueeze(1).expand_as(out["q"]))
    policy_loss = -(weight * out["log_probability"]).mean()
    return {"loss": value_loss + q_loss + policy_loss, "q": q_loss, "policy": policy_loss}
