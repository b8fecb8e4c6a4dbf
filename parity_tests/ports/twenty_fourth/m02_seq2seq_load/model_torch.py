"""Encoder-decoder load forecaster with an explicit recurrent loop.

The loop is written out because the exported graph must not contain the fused
LSTM operator.
"""

import torch
from torch import nn

HISTORY, HORIZON = 24, 8
ENC_UNITS = 10
DEC_UNITS = 2 * ENC_UNITS


class UnrolledLSTM(nn.Module):
    """LSTM over (batch, time, features); gates stored as i, f, g, o."""

    def __init__(self, n_in, n_hidden, backwards=False):
        super().__init__()
        self.n_hidden = n_hidden
        self.backwards = backwards
        self.from_input = nn.Linear(n_in, 4 * n_hidden)
        self.from_state = nn.Linear(n_hidden, 4 * n_hidden, bias=False)

    def forward(self, x, state=None):
        batch, steps, _ = x.shape
        if state is None:
            h = x.new_zeros(batch, self.n_hidden)
            c = x.new_zeros(batch, self.n_hidden)
        else:
            h, c = state
        projected = self.from_input(x)
        order = range(steps)
        if self.backwards:
            order = reversed(order)
        outputs = [None] * steps
        for t in order:
            gates = projected[:, t] + self.from_state(h)
            i, f, g, o = gates.view(batch, 4, self.n_hidden).unbind(1)
            c = c * f.sigmoid() + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            outputs[t] = h
        return torch.stack(outputs, dim=1), (h, c)


class Encoder(nn.Module):
    """Two directions over the history, joined on the feature axis."""

    def __init__(self, n_in, n_hidden):
        super().__init__()
        self.ahead = UnrolledLSTM(n_in, n_hidden)
        self.back = UnrolledLSTM(n_in, n_hidden, backwards=True)

    def forward(self, x):
        seq_a, state_a = self.ahead(x)
        seq_b, state_b = self.back(x)
        memory = torch.cat((seq_a, seq_b), dim=-1)
        h, c = (torch.cat(pair, dim=-1) for pair in zip(state_a, state_b))
        return memory, (h, c)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder(3, ENC_UNITS)
        self.decoder = UnrolledLSTM(2, DEC_UNITS)
        self.query = nn.Linear(DEC_UNITS, DEC_UNITS, bias=False)
        self.combine = nn.Linear(2 * DEC_UNITS, 16)
        self.load = nn.Linear(16, 1)

    def forward(self, past, future):
        memory, state = self.encoder(past)
        decoded, _ = self.decoder(future, state)
        scores = self.query(decoded) @ memory.mT
        context = torch.softmax(scores, dim=-1) @ memory
        joined = torch.cat((context, decoded), dim=-1)
        return self.load(torch.tanh(self.combine(joined)))
