"""RSSM world model; distributions are torch.distributions, the cell is nn.GRUCell."""

import torch
from torch import nn
from torch.distributions import Independent, Normal, kl_divergence
from torch.nn import functional as F


def normal(parameters, detach=False):
    mean, std = parameters.chunk(2, dim=-1)
    std = F.softplus(std) + 0.1
    if detach:
        mean, std = mean.detach(), std.detach()
    return Independent(Normal(mean, std), 1)


class WorldModel(nn.Module):
    def __init__(self, observation=6, action=2, deter=10, stoch=4, hidden=12):
        super().__init__()
        self.deter, self.stoch = deter, stoch
        self.encoder = nn.Sequential(nn.Linear(observation, hidden), nn.SiLU())
        self.mix = nn.Sequential(nn.Linear(stoch + action, hidden), nn.SiLU())
        self.cell = nn.GRUCell(hidden, deter)
        self.prior_head = nn.Linear(deter, 2 * stoch)
        self.posterior_head = nn.Linear(deter + hidden, 2 * stoch)
        self.image = nn.Sequential(
            nn.Linear(deter + stoch, hidden), nn.SiLU(), nn.Linear(hidden, observation)
        )
        self.value = nn.Linear(deter + stoch, 1)

    def rollout(self, obs, action, noise):
        h = obs.new_zeros(len(obs), self.deter)
        z = obs.new_zeros(len(obs), self.stoch)
        hs, zs, posteriors = [], [], []
        for e, a, n in zip(self.encoder(obs).unbind(1), action.unbind(1), noise.unbind(1)):
            h = self.cell(self.mix(torch.cat([z, a], 1)), h)
            parameters = self.posterior_head(torch.cat([h, e], 1))
            mean, std = parameters.chunk(2, 1)
            z = torch.addcmul(mean, F.softplus(std) + 0.1, n)
            hs.append(h)
            zs.append(z)
            posteriors.append(parameters)
        h = torch.stack(hs, 1)
        return torch.cat([h, torch.stack(zs, 1)], -1), self.prior_head(h), torch.stack(posteriors, 1)

    def forward(self, obs, action, noise):
        state, _, _ = self.rollout(obs, action, noise)
        return {"obs": self.image(state), "reward": self.value(state).squeeze(-1)}


def step(model, batch, free=0.05, alpha=0.8):
    inputs, reward = batch
    state, prior, posterior = model.rollout(**inputs)
    image = F.mse_loss(model.image(state), inputs["obs"], reduction="none").sum(-1) / 2
    rewards = F.mse_loss(model.value(state).squeeze(-1), reward, reduction="none") / 2
    forward = kl_divergence(normal(posterior, detach=True), normal(prior)).clamp(min=free)
    backward = kl_divergence(normal(posterior), normal(prior, detach=True)).clamp(min=free)
    total = image + rewards + alpha * forward + (1 - alpha) * backward
    return {"loss": total.sum(1).mean(), "kl": forward.detach().mean()}
