import torch
from torch import nn
from torch.distributions import Categorical, Independent, MixtureSameFamily, Normal

STATE, GOAL, JOINTS, PARTS = 8, 3, 3, 4


class FilmBlock(nn.Module):
    def __init__(self, cin, cout, code):
        super().__init__()
        self.fc = nn.Linear(cin, cout)
        self.ln = nn.LayerNorm(cout)
        self.gain, self.shift = nn.Linear(code, cout), nn.Linear(code, cout)

    def forward(self, x, g):
        return nn.functional.silu(torch.addcmul(self.shift(g), self.ln(self.fc(x)), 1 + self.gain(g)))


class ArmPolicy(nn.Module):
    def __init__(self):
        super().__init__()
        self.goal_code = nn.Sequential(nn.Linear(GOAL, 8), nn.Tanh())
        self.block1 = FilmBlock(STATE, 24, 8)
        self.block2 = FilmBlock(24, 24, 8)
        self.heads = nn.ModuleList(nn.Linear(24, n) for n in (PARTS, PARTS * JOINTS, PARTS * JOINTS))

    def forward(self, state, goal):
        g = self.goal_code(goal)
        x = self.block2(self.block1(state, g), g)
        return torch.cat([head(x) for head in self.heads], dim=1)


def build():
    return ArmPolicy()


def mixture_nll(mixture, action):
    logits, means, spreads = mixture.split([PARTS, PARTS * JOINTS, PARTS * JOINTS], dim=1)
    std = torch.exp(3 * torch.tanh(spreads / 3) - 1)
    parts = Independent(Normal(means.unflatten(1, (PARTS, JOINTS)), std.unflatten(1, (PARTS, JOINTS))), 1)
    return -MixtureSameFamily(Categorical(logits=logits), parts).log_prob(action).mean()


def optimizer(parameters):
    parameters = list(parameters)
    opt = torch.optim.SGD(parameters, lr=0.02)

    def clip(*_):
        nn.utils.clip_grad_norm_(parameters, max_norm=1.0)

    opt.register_step_pre_hook(clip)
    return opt, torch.optim.lr_scheduler.StepLR(opt, step_size=10, gamma=0.8)
