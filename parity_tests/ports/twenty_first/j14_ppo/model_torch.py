import torch
from torch import nn
from torch.distributions import Independent, Normal

CLIP, VF, ENT = 0.2, 0.5, 0.01


class Net(nn.Module):
    def __init__(self, n_obs=8, n_act=2):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(n_obs, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh())
        self.heads = nn.Linear(32, n_act + 1)
        self.log_std = nn.Parameter(torch.zeros(n_act))

    def forward(self, obs):
        out = self.heads(self.trunk(obs))
        return out[:, :-1], out[:, -1:]


def policy_loss(dist, action, old_logp, adv):
    ratio = torch.exp(dist.log_prob(action) - old_logp)
    bound = torch.where(adv >= 0, (1 + CLIP) * adv, (1 - CLIP) * adv)
    return -torch.minimum(ratio * adv, bound).mean()


def value_loss(value, old_value, ret):
    near = old_value + (value - old_value).clamp(-CLIP, CLIP)
    return torch.maximum((value - ret).square(), (near - ret).square()).mean()


def step(model, batch):
    action, (adv, old_logp, ret, old_value) = batch[1][:, :2], batch[1][:, 2:].T
    std, mean = torch.std_mean(adv, correction=0)
    adv = (adv - mean) / (std + 1e-8)

    mu, value = model(batch[0])
    dist = Independent(Normal(mu, model.log_std.exp().expand_as(mu)), 1)
    loss = policy_loss(dist, action, old_logp, adv)
    loss = loss + VF * value_loss(value.squeeze(1), old_value, ret)
    return loss - ENT * dist.entropy().mean()
