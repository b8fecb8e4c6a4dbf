import torch
import torch.nn.functional as F
from torch import nn

N_ACTIONS, K, SUPPORT = 4, 4, 8


def h(x, eps=0.001):
    return x.sign() * ((x.abs() + 1).sqrt() - 1) + eps * x


def scalar_to_support(x):
    x = h(x).clamp(-SUPPORT, SUPPORT)
    low = x.floor()
    frac = x - low
    index = (low + SUPPORT).long()
    probs = x.new_zeros(*x.shape, 2 * SUPPORT + 1)
    probs.scatter_(-1, index.unsqueeze(-1), (1 - frac).unsqueeze(-1))
    above = (index + 1).clamp(max=2 * SUPPORT)
    return probs.scatter_add_(-1, above.unsqueeze(-1), frac.unsqueeze(-1))


def normalize_state(s):
    lo = s.amin(dim=(2, 3), keepdim=True)
    hi = s.amax(dim=(2, 3), keepdim=True)
    return (s - lo) / (hi - lo).clamp(min=1e-5)


class ResidualBlock(nn.Module):
    def __init__(self, c, board):
        super().__init__()
        self.conv1 = nn.Conv2d(c, c, 3, padding=1, bias=False)
        self.ln1 = nn.LayerNorm((c, board, board), eps=1e-3)
        self.conv2 = nn.Conv2d(c, c, 3, padding=1, bias=False)
        self.ln2 = nn.LayerNorm((c, board, board), eps=1e-3)

    def forward(self, x):
        return F.relu(x + self.ln2(self.conv2(F.relu(self.ln1(self.conv1(x))))))


class Head(nn.Module):
    def __init__(self, c, board, n_out):
        super().__init__()
        self.squeeze = nn.Conv2d(c, 2, 1)
        self.fc1 = nn.Linear(2 * board * board, 32)
        self.fc2 = nn.Linear(32, n_out)

    def forward(self, x):
        x = F.relu(self.squeeze(x)).permute(0, 2, 3, 1).flatten(1)
        return self.fc2(F.relu(self.fc1(x)))


class Prediction(nn.Module):
    def __init__(self, c, board, bins):
        super().__init__()
        self.value = Head(c, board, bins)
        self.policy = Head(c, board, N_ACTIONS)

    def forward(self, state):
        return self.policy(state), self.value(state)


class Dynamics(nn.Module):
    def __init__(self, c, board, bins):
        super().__init__()
        self.conv = nn.Conv2d(c + N_ACTIONS, c, 3, padding=1)
        self.block = ResidualBlock(c, board)
        self.reward = Head(c, board, bins)

    def forward(self, state, action):
        a = F.one_hot(action, N_ACTIONS).to(state.dtype)[:, :, None, None].expand(-1, -1, *state.shape[2:])
        x = F.relu(state + self.conv(torch.cat([state, a], 1)))
        state = normalize_state(self.block(x))
        return state, self.reward(state)


class Representation(nn.Module):
    def __init__(self, planes, c, board):
        super().__init__()
        self.conv = nn.Conv2d(planes, c, 3, padding=1)
        self.block = ResidualBlock(c, board)

    def forward(self, obs):
        return normalize_state(self.block(F.relu(self.conv(obs))))


class MuZeroNet(nn.Module):
    def __init__(self, planes=5, c=16, board=6):
        super().__init__()
        bins = 2 * SUPPORT + 1
        self.h = Representation(planes, c, board)
        self.g = Dynamics(c, board, bins)
        self.f = Prediction(c, board, bins)

    def forward(self, observation, actions):
        s = self.h(observation.permute(0, 3, 1, 2))
        outputs = [self.f(s)]
        rewards = []
        for a in actions.long().unbind(1):
            s, r = self.g(s, a)
            rewards.append(r)
            outputs.append(self.f(s))
            s = s.lerp(s.detach(), 0.5)
        policies, values = (torch.stack(o, 1) for o in zip(*outputs))
        return policies, values, torch.stack(rewards, 1)


def soft_ce(logits, target):
    return -(target * logits.log_softmax(-1)).sum(-1)


def unpack(batch, names):
    return [batch[n] for n in names] if isinstance(batch, dict) else batch


def step(model, batch):
    inputs, targets = batch
    observation, actions = unpack(inputs, ("observation", "actions"))
    policy, value, reward, alive = unpack(targets, ("policy", "value", "reward", "alive"))
    p, v, r = model(observation, actions)
    alive = alive.to(p.dtype)

    policy_loss = soft_ce(p, policy.to(p.dtype))
    value_loss = soft_ce(v, scalar_to_support(value.to(p.dtype)))
    reward_loss = soft_ce(r, scalar_to_support(reward.to(p.dtype)))

    per_step = (policy_loss + 0.25 * value_loss + F.pad(reward_loss, (1, 0))) * alive
    unrolled = per_step[:, 1:]
    unrolled = unrolled / K + (unrolled * (1 - 1 / K)).detach()
    return (per_step[:, 0] + unrolled.sum(1)).mean()


def build():
    return MuZeroNet()
