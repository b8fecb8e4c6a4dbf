"""PyTorch port of the selective state space model: the scan is the recurrence itself."""

import torch
from torch import nn
from torch.nn import functional as F


class Mixer(nn.Module):
    def __init__(self, width, inner, state=4, rank=2, taps=4):
        super().__init__()
        self.sizes = [rank, state, state]
        self.in_proj = nn.Linear(width, 2 * inner, bias=False)
        self.conv1d = nn.Conv1d(inner, inner, taps, padding=taps - 1, groups=inner)
        self.x_proj = nn.Linear(inner, sum(self.sizes), bias=False)
        self.dt_proj = nn.Linear(rank, inner)
        self.A_log = nn.Parameter(torch.arange(1.0, state + 1).log().repeat(inner, 1))
        self.D = nn.Parameter(torch.ones(inner))
        self.out_proj = nn.Linear(inner, width, bias=False)

    def scan(self, u):
        delta, B, C = self.x_proj(u).split(self.sizes, dim=-1)
        delta = F.softplus(self.dt_proj(delta))
        transition = torch.exp(-delta.unsqueeze(-1) * self.A_log.exp())
        h = torch.zeros_like(transition[:, 0])
        outputs = []
        for t in range(u.shape[1]):
            h = transition[:, t] * h + torch.einsum("nd,ns->nds", delta[:, t] * u[:, t], B[:, t])
            outputs.append(torch.bmm(h, C[:, t].unsqueeze(-1)).squeeze(-1))
        return torch.stack(outputs, dim=1) + self.D * u

    def forward(self, x):
        u, z = self.in_proj(x).chunk(2, dim=-1)
        u = self.conv1d(u.transpose(1, 2))[..., : x.shape[1]]
        return self.out_proj(self.scan(F.silu(u).transpose(1, 2)) * F.silu(z))


class Residual(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.norm = nn.RMSNorm(width, eps=1e-6)
        self.mixer = Mixer(width, inner)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        return self.drop(self.mixer(self.norm(x))) + x


class Net(nn.Module):
    def __init__(self, vocabulary=13, width=16, inner=24, depth=2, classes=10):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.layers = nn.Sequential(*[Residual(width, inner) for _ in range(depth)])
        self.norm_f = nn.RMSNorm(width, eps=1e-6)
        self.lm_head = nn.Linear(width, classes)

    def forward(self, tokens):
        hidden = self.layers(self.embed(tokens))[:, -1]
        return self.lm_head(self.norm_f(hidden))
