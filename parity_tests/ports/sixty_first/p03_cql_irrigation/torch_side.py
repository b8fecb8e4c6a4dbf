import torch
import torch.nn as nn
import torch.nn.functional as F

GAMMA, TAU, ALPHA = 0.97, 0.05, 0.4


class QNet(nn.Module):
    def __init__(self, n_obs=8, hidden=32, n_actions=5):
        super().__init__()
        self.inp = nn.Sequential(nn.Linear(n_obs, hidden), nn.SiLU(), nn.LayerNorm(hidden))
        self.mid = nn.Sequential(nn.Linear(hidden, hidden), nn.SiLU())
        self.out = nn.Linear(2 * hidden, n_actions)

    def forward(self, obs):
        h = self.inp(obs)
        return self.out(torch.cat([self.mid(h), h], dim=-1))


class IrrigationCQL(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = QNet()
        self.q_target = QNet().requires_grad_(False)
        self.q_target.load_state_dict(self.q.state_dict())

    def forward(self, obs, next_obs=None):
        return self.q(obs)

    @torch.no_grad()
    def bootstrap(self, next_obs, reward, terminal):
        greedy = self.q(next_obs).argmax(1, keepdim=True)
        value = self.q_target(next_obs).gather(1, greedy).squeeze(1)
        return torch.addcmul(reward, 1 - terminal, value, value=GAMMA)

    @torch.no_grad()
    def track(self):
        for slow, fast in zip(self.q_target.parameters(), self.q.parameters()):
            slow.lerp_(fast, TAU)


def step(model, batch):
    x, y = batch
    target = model.bootstrap(x["next_obs"], y["reward"], y["terminal"])
    q = model.q(x["obs"])
    q_a = q.gather(1, y["action"].long()[:, None]).squeeze(1)
    loss = F.smooth_l1_loss(q_a, target) + ALPHA * (q.logsumexp(1) - q_a).mean()
    model.track()
    return loss


def build():
    return IrrigationCQL()
