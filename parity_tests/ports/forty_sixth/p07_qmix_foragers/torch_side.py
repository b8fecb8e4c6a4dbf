import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

GAMMA, TAU = 0.97, 0.05
INPUTS = ("obs", "state", "avail", "actions")


class RNNAgent(nn.Module):
    def __init__(self, n_agents, obs_dim, n_actions, hidden=24):
        super().__init__()
        self.n_agents, self.n_actions = n_agents, n_actions
        self.fc1 = nn.Linear(obs_dim + n_actions + n_agents, hidden)
        self.rnn = nn.GRU(hidden, hidden)
        self.fc2 = nn.Linear(hidden, n_actions)

    def forward(self, obs, last_action):
        """obs: (B, T, N, O), last_action: one-hot, (B, T, N, A)."""
        b, t, n, _ = obs.shape
        ids = torch.eye(n, dtype=obs.dtype, device=obs.device).expand(b, t, n, n)
        x = self.fc1(torch.cat((obs, last_action, ids), -1)).relu()
        x, _ = self.rnn(x.transpose(0, 1).flatten(1, 2))
        return self.fc2(x).unflatten(1, (b, n)).transpose(0, 1)


class QMixer(nn.Module):
    def __init__(self, n_agents, state_dim, embed=8, hyper=16):
        super().__init__()
        self.n_agents, self.embed = n_agents, embed
        self.hyper_w_final = nn.Sequential(nn.Linear(state_dim, hyper), nn.ReLU(), nn.Linear(hyper, embed))
        self.hyper_w_1 = nn.Sequential(
            nn.Linear(state_dim, hyper), nn.ReLU(), nn.Linear(hyper, n_agents * embed)
        )
        self.hyper_b_1 = nn.Linear(state_dim, embed)
        self.V = nn.Sequential(nn.Linear(state_dim, embed), nn.ReLU(), nn.Linear(embed, 1))

    def forward(self, qs, states):
        b, t, n = qs.shape
        states = states.flatten(0, 1)
        w1 = self.hyper_w_1(states).abs().view(-1, n, self.embed)
        b1 = self.hyper_b_1(states).unsqueeze(1)
        hidden = F.elu(torch.baddbmm(b1, qs.reshape(-1, 1, n), w1))
        w2 = self.hyper_w_final(states).abs().unsqueeze(2)
        q_tot = torch.bmm(hidden, w2).squeeze(2) + self.V(states)
        return q_tot.view(b, t)


class QMIX(nn.Module):
    def __init__(self, n_agents=3, obs_dim=10, state_dim=14, n_actions=5):
        super().__init__()
        self.n_actions = n_actions
        self.mac = RNNAgent(n_agents, obs_dim, n_actions)
        self.mixer = QMixer(n_agents, state_dim)
        self.target_mac = copy.deepcopy(self.mac).requires_grad_(False)
        self.target_mixer = copy.deepcopy(self.mixer).requires_grad_(False)

    def last_actions(self, actions, dtype):
        onehot = F.one_hot(actions.long(), self.n_actions).to(dtype)
        return F.pad(onehot, (0, 0, 0, 0, 1, 0))[:, :-1]

    def forward(self, obs, state, avail, actions):
        q = self.mac(obs, self.last_actions(actions, obs.dtype))
        return q, self.mixer(q.masked_fill(avail == 0, -9999999).amax(-1), state)

    @torch.no_grad()
    def update_targets(self):
        for target, online in ((self.target_mac, self.mac), (self.target_mixer, self.mixer)):
            for p, q in zip(target.parameters(), online.parameters()):
                p.lerp_(q, TAU)


def unpack(batch, names):
    return [batch[n] for n in names] if isinstance(batch, dict) else batch


def step(model, batch):
    inputs, targets = batch
    obs, state, avail, actions = unpack(inputs, INPUTS)
    reward, terminated, mask = unpack(targets, ("reward", "terminated", "filled"))
    model.update_targets()

    last = model.last_actions(actions, obs.dtype)
    q = model.mac(obs, last)
    chosen = q[:, :-1].gather(-1, actions[:, :-1].long().unsqueeze(-1)).squeeze(-1)

    with torch.no_grad():
        target_q = model.target_mac(obs[:, 1:], last[:, 1:])
        best = q[:, 1:].masked_fill(avail[:, :-1] == 0, -9999999).argmax(-1, keepdim=True)
        target_q = target_q.gather(-1, best).squeeze(-1)
        returns = reward + GAMMA * (1 - terminated) * model.target_mixer(target_q, state[:, 1:])

    td = (model.mixer(chosen, state[:, :-1]) - returns) * mask
    return td.square().sum() / mask.sum()


def build():
    return QMIX()
