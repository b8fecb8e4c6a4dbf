import torch
from torch import nn


class Patient(nn.Module):
    def __init__(self, features=5, statics=7, hidden=10, cond=12, outputs=2):
        super().__init__()
        self.hidden = hidden
        self.static_net = nn.Sequential(nn.Linear(statics, cond), nn.Tanh())
        self.rnn_a = nn.GRU(features, hidden, batch_first=True, bidirectional=True)
        self.to_scale_shift = nn.Linear(cond, 4 * hidden)
        self.rnn_b = nn.GRU(2 * hidden, hidden, batch_first=True, bidirectional=True)
        self.readout = nn.Linear(hidden + cond, outputs)

    def forward(self, series, static):
        c = self.static_net(static)
        h, _ = self.rnn_a(series)
        gamma, beta = self.to_scale_shift(c).unsqueeze(1).chunk(2, dim=-1)
        h = torch.addcmul(h + beta, h, gamma)
        _, last = self.rnn_b(h)
        return self.readout(torch.cat([last.mean(0), c], dim=1))


def build():
    return Patient()
