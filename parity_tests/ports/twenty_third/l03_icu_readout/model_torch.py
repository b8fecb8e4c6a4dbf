"""PyTorch version of the deterioration model.

forward(vitals, lengths): vitals (N, 20, 6) padded with zeros at the end,
lengths (N,) the number of observed hours. Gives the logit of deterioration.
"""

import torch
import torch.nn.functional as F
from torch import nn


def hour_mask(lengths, hours):
    steps = torch.arange(hours, device=lengths.device)
    return steps.unsqueeze(0) < lengths.unsqueeze(1)


def take_state(states, index):
    """Picks states[n, index[n]] for every stay n."""
    index = index.long().view(-1, 1, 1).expand(-1, 1, states.shape[-1])
    return states.gather(1, index).squeeze(1)


class AttentionReadout(nn.Module):
    """Additive attention; padded hours get no weight."""

    def __init__(self, dim, units):
        super().__init__()
        self.hidden = nn.Linear(dim, units)
        self.score = nn.Linear(units, 1, bias=False)

    def forward(self, states, observed):
        score = self.score(torch.tanh(self.hidden(states))).squeeze(-1)
        shifted = score - score.max(dim=1, keepdim=True).values.detach()
        weight = torch.exp(shifted) * observed.to(score.dtype)
        weight = weight / weight.sum(dim=1, keepdim=True)
        return torch.bmm(weight.unsqueeze(1), states).squeeze(1)


class IcuRisk(nn.Module):
    def __init__(self, n_vitals=6, embed=12, units=14):
        super().__init__()
        self.embed = nn.Linear(n_vitals, embed)
        self.gru = nn.GRU(embed, units, batch_first=True)
        self.readout = AttentionReadout(units, 8)
        self.hidden = nn.Linear(2 * units, 10)
        self.risk = nn.Linear(10, 1)

    def forward(self, vitals, lengths):
        hours = vitals.shape[1]
        observed = hour_mask(lengths, hours)
        states, _ = self.gru(torch.tanh(self.embed(vitals)))
        # padding comes after the stay, so the states of observed hours are not
        # touched by it and no packing is needed
        context = self.readout(states, observed)
        last = take_state(states, lengths.clamp(max=hours - 1))
        x = F.elu(self.hidden(torch.cat([context, last], dim=1)))
        return self.risk(x)
