"""Next item of a shopping session (GRU4Rec), items scored by their own embeddings."""

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence


class GRU4Rec(nn.Module):
    def __init__(self, n_items=30, width=16, units=20):
        super().__init__()
        self.items = nn.Embedding(n_items, width, padding_idx=0)
        self.gru = nn.GRU(width, units, batch_first=True)
        self.query = nn.Linear(units, width)
        self.item_bias = nn.Parameter(torch.zeros(n_items))

    def forward(self, session):
        lengths = (session != 0).sum(dim=1).cpu()
        packed = pack_padded_sequence(self.items(session), lengths, batch_first=True, enforce_sorted=False)
        _, state = self.gru(packed)
        query = torch.tanh(self.query(state[-1]))
        table = self.items.weight.data
        return torch.addmm(self.item_bias, query, table.t())
