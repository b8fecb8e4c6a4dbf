import torch
from torch import nn
from torch.distributions import Categorical

GAMMA = 0.97
EPS = 0.1
BETA_H = 0.02
TERMINATION_REG = 0.01


class FerryOptions(nn.Module):
    def __init__(self, n_obs=10, n_options=4, n_actions=5, hidden=32):
        super().__init__()
        self.n_options, self.n_actions = n_options, n_actions
        self.features = nn.Sequential(
            nn.Linear(n_obs, hidden), nn.SiLU(), nn.LayerNorm(hidden), nn.Linear(hidden, hidden), nn.Tanh()
        )
        self.q_omega = nn.Linear(hidden, n_options)
        self.pi_w = nn.Parameter(torch.empty(n_options, hidden, n_actions))
        self.pi_b = nn.Parameter(torch.zeros(n_options, n_actions))
        self.beta = nn.Linear(hidden, n_options)
        nn.init.xavier_uniform_(self.pi_w)

    def forward(self, x):
        z = self.features(x["obs"])
        return self.q_omega(z), self.beta(z), torch.einsum("bh,oha->boa", z, self.pi_w) + self.pi_b

    def policy(self, z, option):
        """Distribution over actions of each sample's own option."""
        logits = torch.bmm(z.unsqueeze(1), self.pi_w[option]).squeeze(1) + self.pi_b[option]
        return Categorical(logits=logits)


def greedy_mix(q):
    return (1 - EPS) * q.amax(-1) + EPS * q.mean(-1)


def step(model, batch):
    x, r = batch
    o = x["option"].long()
    alive = 1 - x["done"]
    take = lambda t: t.gather(1, o[:, None]).squeeze(1)

    z = model.features(x["obs"])
    q_all = model.q_omega(z)
    q = take(q_all)
    with torch.no_grad():
        z_next = model.features(x["next_obs"])
        q_next = model.q_omega(z_next)
        beta_next = take(model.beta(z_next)).sigmoid()
        u = torch.lerp(take(q_next), greedy_mix(q_next), beta_next)
        target = r + GAMMA**2 * alive * u

    td = target - q
    pi = model.policy(z, o)
    actor = -(td.detach() * pi.log_prob(x["action"].long())) - BETA_H * pi.entropy()

    beta = take(model.beta(z)).sigmoid()
    gain = (q - greedy_mix(q_all)).detach() + TERMINATION_REG
    termination = alive * beta * gain
    return (0.5 * td.square() + actor + termination).mean()


def build():
    return FerryOptions()
