import copy

import torch
import torch.nn.functional as F
from torch import nn

GAMMA, TAU = 0.97, 0.05


class Dueling(nn.Module):
    def __init__(self, n_obs=6, n_act=4, hidden=32):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(n_obs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.value = nn.Linear(hidden, 1)
        self.adv = nn.Linear(hidden, n_act)

    def forward(self, obs):
        h = self.body(obs)
        adv = self.adv(h)
        return self.value(h) + adv - adv.mean()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.online = Dueling()
        self.frozen = copy.deepcopy(self.online).requires_grad_(False)

    @torch.no_grad()
    def follow(self):
        for slow, fast in zip(self.frozen.parameters(), self.online.parameters()):
            slow.mul_(TAU).add_(fast, alpha=1.0 - TAU)

    def forward(self, obs, action, next_obs, done):
        q = self.online(obs).gather(1, action.long().unsqueeze(1)).squeeze(1)
        with torch.no_grad():
            best = self.online(next_obs).argmax(dim=1, keepdim=True)
            ahead = self.frozen(next_obs).gather(1, best).squeeze(1)
        return q, ahead * (1.0 - done)


def step(model, batch):
    model.follow()
    q, ahead = model(*(batch[0][name] for name in ("obs", "action", "next_obs", "done")))
    return F.smooth_l1_loss(q, batch[1] + GAMMA * ahead)
