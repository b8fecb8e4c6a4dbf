import torch
import torch.nn as nn
from torch.distributions.normal import Normal


def layer_init(layer, std=2**0.5, bias_const=0.0):
    nn.init.orthogonal_(layer.weight, std)
    nn.init.constant_(layer.bias, bias_const)
    return layer


class Net(nn.Module):
    def __init__(self, obs_dim=8, act_dim=2):
        super().__init__()
        self.critic = nn.Sequential(
            layer_init(nn.Linear(obs_dim, 32)),
            nn.Tanh(),
            layer_init(nn.Linear(32, 24)),
            nn.Tanh(),
            layer_init(nn.Linear(24, 1), std=1.0),
        )
        self.actor_mean = nn.Sequential(
            layer_init(nn.Linear(obs_dim, 32)),
            nn.Tanh(),
            layer_init(nn.Linear(32, 32)),
            nn.Tanh(),
            layer_init(nn.Linear(32, act_dim), std=0.01),
        )
        self.actor_logstd = nn.Parameter(torch.full((1, act_dim), -0.5))

    def forward(self, observation):
        mean = self.actor_mean(observation)
        return mean, self.actor_logstd.expand_as(mean), self.critic(observation).squeeze(-1)


def step(agent, batch, clip_coef=0.2, vf_coef=0.5, ent_coef=0.01):
    obs, rollout = batch
    actions, old_logprob, advantages, returns = rollout.split([2, 1, 1, 1], dim=1)
    old_logprob, advantages, returns = old_logprob.squeeze(1), advantages.squeeze(1), returns.squeeze(1)
    mean, logstd, value = agent(obs)
    dist = Normal(mean, logstd.exp())
    ratio = (dist.log_prob(actions).sum(1) - old_logprob).exp()
    advantages = (advantages - advantages.mean()) / (advantages.std(unbiased=False) + 1e-8)
    pg_loss = torch.max(-advantages * ratio, -advantages * ratio.clamp(1 - clip_coef, 1 + clip_coef)).mean()
    v_loss = 0.5 * ((value - returns) ** 2).mean()
    entropy = dist.entropy().sum(1).mean()
    return {
        "loss": pg_loss - ent_coef * entropy + vf_coef * v_loss,
        "policy": pg_loss.detach(),
        "value": v_loss.detach(),
    }
