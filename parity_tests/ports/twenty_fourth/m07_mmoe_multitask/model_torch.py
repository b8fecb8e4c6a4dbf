"""Multi-gate mixture of experts for feed ranking (click and dwell heads)."""

import torch
import torch.nn.functional as F
from torch import nn

FEATURES, EXPERTS, UNITS = 20, 4, 16
GATE_TEMPERATURE = 1.5
TASKS = ("click", "dwell")


class Expert(nn.Module):
    def __init__(self, n_in, units):
        super().__init__()
        self.fc_in = nn.Linear(n_in, units)
        self.drop = nn.Dropout(0.2)
        self.fc_out = nn.Linear(units, units)

    def forward(self, x):
        h = self.drop(self.fc_in(x).clamp(min=0))
        return self.fc_out(h).clamp(min=0)


class Tower(nn.Module):
    """Layer norm written out (shared epsilon of the training stack), then SELU."""

    def __init__(self, units, hidden=8, eps=1e-3):
        super().__init__()
        self.eps = eps
        self.scale = nn.Parameter(torch.ones(units))
        self.offset = nn.Parameter(torch.zeros(units))
        self.hidden = nn.Linear(units, hidden)

    def forward(self, x):
        var, mean = torch.var_mean(x, dim=-1, keepdim=True, correction=0)
        x = (x - mean) * torch.rsqrt(var + self.eps)
        return F.selu(self.hidden(x * self.scale + self.offset))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.cross = nn.ModuleList(nn.Linear(FEATURES, FEATURES) for _ in range(2))
        self.experts = nn.ModuleList(Expert(FEATURES, UNITS) for _ in range(EXPERTS))
        self.gates = nn.ModuleDict({task: nn.Linear(FEATURES, EXPERTS, bias=False) for task in TASKS})
        self.towers = nn.ModuleDict({task: Tower(UNITS) for task in TASKS})
        self.click = nn.Linear(8, 1)
        self.dwell = nn.Linear(8 + 1, 1)

    def mixture(self, task, x, experts):
        """experts is a list of (B, U); accumulate it with the gate weights."""
        scores = self.gates[task](x) / GATE_TEMPERATURE
        log_weights = scores - scores.logsumexp(dim=-1, keepdim=True)
        mixed = 0
        for weight, output in zip(log_weights.exp().split(1, dim=-1), experts):
            mixed = mixed + weight * output
        return self.towers[task](mixed)

    def forward(self, inputs):
        x = inputs
        for layer in self.cross:
            x = torch.addcmul(x, inputs, layer(x))
        experts = [expert(x) for expert in self.experts]

        click = self.click(self.mixture("click", x, experts))
        with torch.no_grad():
            p_click = click.sigmoid()
        dwell_in = torch.cat((self.mixture("dwell", x, experts), p_click), dim=-1)
        return {"click": click, "dwell": self.dwell(dwell_in)}
