import torch
from torch import nn


def carry_forward(value, observed):
    """last[t] = latest measured value strictly before t (0 if there is none)."""
    last = [torch.zeros_like(value[:, 0])]
    for t in range(value.shape[1] - 1):
        last.append(torch.where(observed[:, t] > 0.5, value[:, t], last[-1]))
    return torch.stack(last, dim=1)


class GRUD(nn.Module):
    def __init__(self, n_vars=4, hidden=7):
        super().__init__()
        self.hidden = hidden
        self.decay_x_w = nn.Parameter(torch.full((n_vars,), 0.3))
        self.decay_x_b = nn.Parameter(torch.zeros(n_vars))
        self.decay_h = nn.Linear(n_vars, hidden)
        width = 2 * n_vars + hidden
        self.update = nn.Linear(width, hidden)
        self.reset = nn.Linear(width, hidden)
        self.candidate = nn.Linear(width, hidden)
        self.risk = nn.Linear(hidden, 1)

    def forward(self, value, observed, gap):
        # everything that does not depend on the hidden state is done for all steps at once
        gx = torch.exp(-(self.decay_x_w * gap + self.decay_x_b).clamp(min=0))
        gh = torch.exp(-self.decay_h(gap).clamp(min=0))
        stale = carry_forward(value, observed)
        x = torch.where(observed > 0.5, value, gx * stale)
        inp = torch.cat([x, observed], dim=-1)
        h = value.new_zeros(value.shape[0], self.hidden)
        for t in range(value.shape[1]):
            h = gh[:, t] * h
            gates_in = torch.cat([inp[:, t], h], dim=-1)
            z = torch.sigmoid(self.update(gates_in))
            r = torch.sigmoid(self.reset(gates_in))
            n = torch.tanh(self.candidate(torch.cat([inp[:, t], r * h], dim=-1)))
            h = h + z * (n - h)
        return self.risk(h)


def build():
    return GRUD()
