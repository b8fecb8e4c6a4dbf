import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Normal

K, D = 4, 2


class CausalConv(nn.Conv1d):
    def __init__(self, ci, co, k, d):
        super().__init__(ci, co, k, dilation=d)
        self.left = (k - 1) * d

    def forward(self, x):
        return super().forward(F.pad(x, (self.left, 0)))


class Gated(nn.Module):
    def __init__(self, c, d):
        super().__init__()
        self.f = CausalConv(c, c, 3, d)
        self.g = CausalConv(c, c, 3, d)
        self.o = nn.Conv1d(c, c, 1)

    def forward(self, x):
        z = torch.tanh(self.f(x)) * torch.sigmoid(self.g(x))
        return x + self.o(z), z


class MDN(nn.Module):
    def __init__(self):
        super().__init__()
        self.inproj = nn.Conv1d(3, 8, 1)
        self.blocks = nn.ModuleList([Gated(8, d) for d in (1, 2, 4)])
        self.hidden = nn.Linear(8, 16)
        self.pi = nn.Linear(16, K)
        self.mu = nn.Linear(16, K * D)
        self.rho = nn.Linear(16, K * D)

    def forward(self, x):
        x = self.inproj(x.transpose(1, 2))
        total = 0
        for block in self.blocks:
            x, z = block(x)
            total = total + z
        h = F.selu(self.hidden(F.relu(total + x)[:, :, -1]))
        return torch.cat([self.pi(h), self.mu(h), self.rho(h)], dim=-1)


def build():
    return MDN()


def mdn_nll(prediction, target):
    logits, mu, rho = prediction.split([K, K * D, K * D], dim=-1)
    mu, rho = mu.view(-1, K, D), rho.view(-1, K, D)
    comp = Normal(mu, F.softplus(rho) + 1e-2)
    log_n = comp.log_prob(target.unsqueeze(1))
    log_pi = F.log_softmax(logits, dim=-1).unsqueeze(-1)
    return -torch.logsumexp(log_pi + log_n, dim=1).sum(-1).mean()
