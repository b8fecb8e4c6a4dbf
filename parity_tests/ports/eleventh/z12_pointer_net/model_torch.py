"""PyTorch port of the pointer network."""

import torch
from torch import nn
from torch.nn import functional as F


class AdditiveAttention(nn.Module):
    def __init__(self, memory, state):
        super().__init__()
        self.w_memory = nn.Linear(memory, state, bias=False)
        self.w_state = nn.Linear(state, state)
        self.v = nn.Linear(state, 1, bias=False)

    def forward(self, projected, state):
        return self.v(torch.tanh(projected + self.w_state(state).unsqueeze(1))).squeeze(-1)


class Net(nn.Module):
    def __init__(self, width=20, half=10):
        super().__init__()
        self.embed = nn.Linear(2, 16)
        self.encoder = nn.GRU(16, half, batch_first=True, bidirectional=True)
        self.bridge = nn.Linear(2 * half, width)
        self.start = nn.Parameter(torch.empty(1, 2 * half))
        self.decoder = nn.GRUCell(2 * half, width)
        self.attention = AdditiveAttention(2 * half, width)
        nn.init.xavier_uniform_(self.start)

    def teacher(self, memory, order):
        """What the decoder reads at each step: the start symbol, then what should have been chosen before."""
        chosen = memory.gather(1, order.long().unsqueeze(-1).expand(-1, -1, memory.shape[-1]))
        return torch.cat([self.start.expand(len(memory), 1, -1), chosen[:, :-1]], dim=1)

    def forward(self, points, order):
        memory, _ = self.encoder(torch.tanh(self.embed(points)))
        state = torch.tanh(self.bridge(memory[:, -1]))
        projected = self.attention.w_memory(memory)
        picked = F.one_hot(order.long(), points.shape[1]).bool()
        logits = []
        for t, x in enumerate(self.teacher(memory, order).unbind(1)):
            state = self.decoder(x, state)
            scores = self.attention(projected, state)
            if t > 0:
                scores = scores.masked_fill(picked[:, t - 1], -100.0)
            logits.append(scores)
        return torch.stack(logits, dim=1)
