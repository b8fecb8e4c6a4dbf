import torch
import torch.nn.functional as F
from torch import nn


class ValueNet(nn.Module):
    def __init__(self, n_obs, width=32):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(n_obs, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.v = nn.Linear(width, 1)

    def forward(self, obs):
        features = self.body(obs)
        return self.v(features), features


class NAF(nn.Module):
    def __init__(self, n_obs=7, n_act=3, gamma=0.97, tau=0.05, bound=2.5):
        super().__init__()
        self.gamma, self.tau, self.bound = gamma, tau, bound
        self.net = ValueNet(n_obs)
        self.policy = nn.Linear(32, n_act)
        self.chol = nn.Linear(32, n_act * (n_act + 1) // 2)
        self.frozen = ValueNet(n_obs).requires_grad_(False)
        self.register_buffer("tril", torch.tril_indices(n_act, n_act), persistent=False)

    def forward(self, obs, action):
        value, features = self.net(obs)
        delta = action - self.policy(features).tanh()
        n = delta.shape[-1]
        L = delta.new_zeros(len(delta), n, n)
        L[:, self.tril[0], self.tril[1]] = self.chol(features)
        L = L.tril(-1) + torch.diag_embed(L.diagonal(dim1=1, dim2=2).exp())
        advantage = -0.5 * torch.einsum("bij,bj->bi", L, delta).square().sum(-1, keepdim=True)
        return value + advantage

    @torch.no_grad()
    def track(self):
        for p_slow, p in zip(self.frozen.parameters(), self.net.parameters()):
            p_slow.lerp_(p, self.tau)

    @torch.no_grad()
    def bootstrap(self, outcome):
        reward, done, after = outcome.split([1, 1, outcome.shape[1] - 2], dim=1)
        nxt = self.frozen(after)[0].clamp(-self.bound, self.bound)
        return torch.where(done > 0.5, reward, reward + self.gamma * nxt)


def step(model, batch):
    model.track()
    inputs, outcome = batch
    q = model(inputs["obs"], inputs["action"])
    return F.huber_loss(q, model.bootstrap(outcome))


def build():
    return NAF()
