"""Soft actor-critic with discrete actions; one backward pass for critics, actor and temperature."""

import copy
import math

import torch
import torch.nn.functional as F
from torch import nn

N_SENSORS, N_READINGS, N_ACTIONS = 5, 6, 7
HIDDEN = 48
POLYAK = 0.02


class EnsembleLinear(nn.Module):
    def __init__(self, n, d_in, d_out):
        super().__init__()
        bound = math.sqrt(3.0 / d_in)
        self.weight = nn.Parameter(torch.empty(n, d_in, d_out).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(n, 1, d_out))

    def forward(self, x):
        return torch.baddbmm(self.bias, x, self.weight)


def flatten_in_time(x):
    return x.transpose(1, 2).flatten(1)


class DoubleQ(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(N_SENSORS, 12, 3)
        self.fc1 = EnsembleLinear(2, 12 * (N_READINGS - 2), HIDDEN)
        self.ln = nn.LayerNorm(HIDDEN)
        self.fc2 = EnsembleLinear(2, HIDDEN, HIDDEN)
        self.out = EnsembleLinear(2, HIDDEN, N_ACTIONS)

    def forward(self, obs):
        z = flatten_in_time(F.silu(self.conv(obs.transpose(1, 2))))
        z = z.expand(2, *z.shape)
        z = F.silu(self.ln(self.fc1(z)))
        return self.out(F.silu(self.fc2(z)))


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(N_SENSORS, 16, 3)
        self.fc = nn.Linear(16 * (N_READINGS - 2), HIDDEN)
        self.head = nn.Linear(HIDDEN, N_ACTIONS)

    def forward(self, obs, legal):
        z = flatten_in_time(F.silu(self.conv(obs.transpose(1, 2))))
        logits = self.head(F.silu(self.fc(z)))
        return F.log_softmax(logits.masked_fill(legal <= 0, -1e9), dim=-1)


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.log_alpha = nn.Parameter(torch.tensor(-1.0))
        self.actor = Actor()
        self.critic = DoubleQ()
        self.critic_target = copy.deepcopy(self.critic).requires_grad_(False)

    def forward(self, legal, next_legal, next_obs, obs):
        return self.actor(obs, legal).exp()

    @torch.no_grad()
    def soft_update(self):
        for t, s in zip(self.critic_target.parameters(), self.critic.parameters()):
            t.lerp_(s, POLYAK)


def _pick(group, *names):
    return [group[n] for n in names] if isinstance(group, dict) else list(group)


def step(model, batch):
    inputs, targets = batch
    legal, next_legal, next_obs, obs = _pick(inputs, "legal", "next_legal", "next_obs", "obs")
    action, discount, reward = _pick(targets, "action", "discount", "reward")
    model.soft_update()
    alpha = model.log_alpha.exp().detach()

    with torch.no_grad():
        next_logp = model.actor(next_obs, next_legal)
        next_p = next_logp.exp()
        soft_q = model.critic_target(next_obs) - alpha * next_logp
        next_v = (next_p * soft_q).sum(-1).amin(0)
        td_target = reward + discount * next_v

    qs = model.critic(obs)
    index = action.long().view(1, -1, 1).expand(2, -1, 1)
    q_taken = qs.gather(2, index).squeeze(2)
    critic_loss = 0.5 * F.mse_loss(q_taken, td_target.expand_as(q_taken), reduction="none").sum(0).mean()

    logp = model.actor(obs, legal)
    p = logp.exp()
    q_min = torch.min(qs[0], qs[1])
    actor_loss = (p * (alpha * logp - q_min)).sum(-1).mean()

    entropy = -(p * logp).sum(-1).detach()
    target_entropy = 0.6 * legal.sum(-1).log()
    alpha_loss = (model.log_alpha * (entropy - target_entropy)).mean()
    return critic_loss + actor_loss + alpha_loss


def build():
    return Agent()
