"""Rainbow-like categorical DQN (dueling, double, prioritised) that sends lifts to floors."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

KEYS = ("action", "reward", "discount", "weight", "next_obs")


class DuelingHead(nn.Module):
    def __init__(self, width, actions, atoms, hidden=32):
        super().__init__()
        self.shape = (actions, atoms)
        self.adv = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, actions * atoms))
        self.val = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, atoms))

    def forward(self, x):
        a = self.adv(x).unflatten(-1, self.shape)
        return self.val(x).unsqueeze(1) + (a - a.mean(dim=1, keepdim=True))


class QNet(nn.Module):
    def __init__(self, features=6, channels=24, actions=4, atoms=21):
        super().__init__()
        self.shaft = nn.Sequential(
            nn.Conv1d(features, channels, 3, padding=1),
            nn.ReLU(),
            nn.Conv1d(channels, channels, 3, padding=2, dilation=2),
            nn.ReLU(),
        )
        self.mlp = nn.Sequential(nn.Linear(2 * channels, 48), nn.ReLU())
        self.head = DuelingHead(48, actions, atoms)

    def forward(self, obs):
        h = self.shaft(obs.mT)
        return self.head(self.mlp(torch.cat([h.mean(-1), h.amax(-1)], dim=-1)))


class C51(nn.Module):
    def __init__(self, low=-10.0, high=10.0, atoms=21, tau=0.05):
        super().__init__()
        self.low, self.high, self.tau = low, high, tau
        self.step_size = (high - low) / (atoms - 1)
        self.register_buffer("z", torch.linspace(low, high, atoms), persistent=False)
        self.q = QNet(atoms=atoms)
        self.q_target = copy.deepcopy(self.q).requires_grad_(False)

    def forward(self, obs):
        return self.q(obs)

    @torch.no_grad()
    def track(self):
        for slow, fast in zip(self.q_target.parameters(), self.q.parameters()):
            slow.lerp_(fast, self.tau)

    @torch.no_grad()
    def project(self, next_obs, reward, discount):
        greedy = (self.q(next_obs).softmax(-1) @ self.z).argmax(-1)
        rows = torch.arange(len(greedy), device=greedy.device)
        p = self.q_target(next_obs)[rows, greedy].softmax(-1)
        tz = (reward[:, None] + discount[:, None] * self.z).clamp(self.low, self.high)
        b = (tz - self.low) / self.step_size
        lower = b.floor()
        share = b - lower
        lower = lower.long()
        upper = (lower + 1).clamp(max=p.shape[-1] - 1)
        m = torch.zeros_like(p)
        m.scatter_add_(1, lower, p * (1 - share))
        m.scatter_add_(1, upper, p * share)
        return m


def build():
    return C51()


def step(model, batch):
    obs, tr = batch
    if isinstance(obs, dict):
        obs = obs["obs"]
    if not isinstance(tr, dict):
        tr = dict(zip(KEYS, tr))
    model.track()
    m = model.project(tr["next_obs"], tr["reward"].to(obs.dtype), tr["discount"].to(obs.dtype))
    action = tr["action"].long()
    logits = model(obs).take_along_dim(action[:, None, None], dim=1).squeeze(1)
    nll = F.cross_entropy(logits, m, reduction="none")
    w = tr["weight"].to(obs.dtype)
    return (w * nll).mean()
