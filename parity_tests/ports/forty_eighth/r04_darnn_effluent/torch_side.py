"""DA-RNN (GRU flavour) for effluent ammonium."""

import torch
from torch import nn


class AdditiveScore(nn.Module):
    def __init__(self, query, key, hidden):
        super().__init__()
        self.key = nn.Linear(key, hidden)
        self.query = nn.Linear(query, hidden, bias=False)
        self.v = nn.Linear(hidden, 1, bias=False)

    def forward(self, query, keys):
        return self.v(torch.tanh(self.query(query).unsqueeze(1) + keys)).squeeze(-1).softmax(dim=1)


class DriverEncoder(nn.Module):
    def __init__(self, drivers, hidden, window):
        super().__init__()
        self.rnn = nn.GRUCell(drivers, hidden)
        self.attn = AdditiveScore(hidden, window, window)

    def forward(self, x):
        keys = self.attn.key(x.transpose(1, 2))
        h = x.new_zeros(x.shape[0], self.rnn.hidden_size)
        out = []
        for x_t in x.unbind(1):
            h = self.rnn(x_t * self.attn(h, keys), h)
            out.append(h)
        return torch.stack(out, dim=1)


class TargetDecoder(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.rnn = nn.GRUCell(1, hidden)
        self.attn = AdditiveScore(hidden, hidden, hidden)
        self.fc = nn.Linear(1 + hidden, 1)

    def look(self, h, keys):
        return torch.einsum("bt,bth->bh", self.attn(h, keys), keys)

    def forward(self, memory, history):
        keys = self.attn.key(memory)
        h = memory[:, -1]
        for y_t in history.split(1, dim=1):
            context = self.look(h, keys)
            h = self.rnn(self.fc(torch.cat((y_t, context), dim=1)), h)
        return torch.cat((h, context), dim=1)


class DARNN(nn.Module):
    def __init__(self, drivers=6, window=12, hidden=16):
        super().__init__()
        self.encode = DriverEncoder(drivers, hidden, window)
        self.decode = TargetDecoder(hidden)
        self.readout = nn.Sequential(nn.Linear(2 * hidden, hidden), nn.Linear(hidden, 1))

    def forward(self, drivers, history):
        return self.readout(self.decode(self.encode(drivers), history))


def build():
    return DARNN()


def optimizer(parameters):
    sgd = torch.optim.SGD(parameters, lr=0.0625)
    return sgd, torch.optim.lr_scheduler.StepLR(sgd, step_size=20, gamma=0.5)
