import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(7, 10, num_layers=2, batch_first=True, bidirectional=True)
        self.who = nn.Linear(4, 8)
        self.mix = nn.Linear(28, 16)
        self.risk = nn.Linear(16, 1)

    def forward(self, vitals, patient):
        hours = vitals.ne(0).any(dim=-1).sum(dim=1).cpu()
        packed = pack_padded_sequence(vitals, hours, batch_first=True, enforce_sorted=False)
        _, hidden = self.gru(packed)
        forward, backward = hidden[2:]
        stay = torch.cat([forward, backward, torch.tanh(self.who(patient))], dim=1)
        return self.risk(self.mix(stay).relu())
