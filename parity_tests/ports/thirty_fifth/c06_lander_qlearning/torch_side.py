"""Duelling double DQN."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

GAMMA, TAU = 0.95, 0.05


class QNet(nn.Module):
    def __init__(self, obs=6, actions=4, width=24):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.value = nn.Linear(width, 1)
        self.advantage = nn.Linear(width, actions)

    def forward(self, x):
        h = self.body(x)
        a = self.advantage(h)
        return self.value(h) + a - a.mean(1, keepdim=True)


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.online = QNet()
        self.target = copy.deepcopy(self.online).requires_grad_(False)

    def forward(self, obs):
        return self.online(obs)

    @torch.no_grad()
    def follow(self):
        for t, o in zip(self.target.parameters(), self.online.parameters()):
            t.lerp_(o, TAU)


def build():
    return Agent()


def step(model, batch):
    obs, packed = (batch["obs"], batch["transition"]) if isinstance(batch, dict) else batch
    model.follow()
    action, reward, done, following = packed[:, :1].long(), packed[:, 1], packed[:, 2], packed[:, 3:]
    q = model.online(obs).gather(1, action).squeeze(1)
    with torch.no_grad():
        next_q = model.target(following)
        best = next_q.argmax(1, keepdim=True)
        goal = reward + GAMMA * (1 - done) * next_q.gather(1, best).squeeze(1)
    return F.huber_loss(q, goal)
