from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

MEANS = (0.75, -0.5, 1.5, 0.25)


class State(NamedTuple):
    hidden: torch.Tensor
    last: torch.Tensor


class GRUDCell(nn.Module):
    """One step; gates are stacked as update, reset, candidate."""

    def __init__(self, features: int, units: int, means):
        super().__init__()
        self.units = units
        self.register_buffer("means", torch.tensor(means), persistent=False)
        self.decay_x = nn.Parameter(torch.ones(features))
        self.decay_x_bias = nn.Parameter(torch.zeros(features))
        self.decay_h = nn.Linear(features, units)
        self.inputs = nn.Linear(2 * features, 3 * units)
        self.gates = nn.Linear(units, 2 * units, bias=False)
        self.candidate = nn.Linear(units, units, bias=False)

    def start(self, batch: int) -> State:
        return State(self.means.new_zeros(batch, self.units), torch.zeros_like(self.means).expand(batch, -1))

    def forward(self, value, seen, delta, state: State) -> State:
        fade_x = (-F.relu(delta * self.decay_x + self.decay_x_bias)).exp()
        fade_h = (-F.relu(self.decay_h(delta))).exp()
        guess = torch.lerp(self.means, state.last, fade_x)
        x = torch.where(seen > 0, value, guess)
        last = torch.where(seen > 0, value, state.last)
        hidden = fade_h * state.hidden
        zr, n = self.inputs(torch.cat([x, seen], dim=1)).split([2 * self.units, self.units], dim=1)
        z, r = (zr + self.gates(hidden)).sigmoid().chunk(2, dim=1)
        n = torch.tanh(n + self.candidate(r * hidden))
        return State(torch.lerp(state.hidden, n, z), last)


class ICU(nn.Module):
    def __init__(self, features=4, units=9):
        super().__init__()
        self.cell = GRUDCell(features, units, MEANS)
        self.shared = nn.Linear(units + 1, 8)
        self.death = nn.Linear(8, 1)
        self.days = nn.Linear(8, 1)

    def forward(self, values, observed, delta, age):
        state = self.cell.start(len(values))
        for value, seen, since in zip(values.unbind(1), observed.unbind(1), delta.unbind(1)):
            state = self.cell(value, seen, since, state)
        x = self.shared(torch.cat([state.hidden, age], dim=1)).relu()
        return {"death": self.death(x), "days": F.softplus(self.days(x))}


def death_loss(output, target):
    return F.binary_cross_entropy_with_logits(output, target, pos_weight=output.new_tensor(3.0))


def days_loss(output, target):
    error = target.log1p() - output.log1p()
    return 0.5 * (error.square() * (1 + (error < 0).to(error.dtype))).mean()
