"""BiDAF in PyTorch: packed sequences, and the similarity as three products instead of one of all pairs."""

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class Encoder(nn.GRU):
    def __init__(self, inputs, units):
        super().__init__(inputs, units, batch_first=True, bidirectional=True)

    def forward(self, x, keep):
        packed = pack_padded_sequence(x, keep.sum(1).cpu(), batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(super().forward(packed)[0], batch_first=True, total_length=x.shape[1])[0]


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.passage = nn.Linear(width, 1, bias=False)
        self.question = nn.Linear(width, 1, bias=False)
        self.product = nn.Parameter(nn.init.normal_(torch.empty(width), std=0.2))

    def forward(self, h, u, keep_h, keep_u):
        s = self.passage(h) + self.question(u).mT + torch.einsum("bid,bjd,d->bij", h, u, self.product)
        s = s.masked_fill(~keep_u[:, None], -1e9)
        to_question = s.softmax(2) @ u
        weight = s.amax(2).masked_fill(~keep_h, -1e9).softmax(1)
        to_passage = torch.einsum("bi,bid->bd", weight, h)[:, None]
        return torch.cat([h, to_question, h * to_question, h * to_passage], dim=2)


class Net(nn.Module):
    def __init__(self, tokens=40, width=7, units=5):
        super().__init__()
        self.embedding = nn.Embedding(tokens, width)
        self.encoder = Encoder(width, units)
        self.attention = Attention(2 * units)
        self.modelling = Encoder(8 * units, units)
        self.start = nn.Linear(10 * units, 1)
        self.end = nn.Linear(12 * units, 1)

    def forward(self, passage, question):
        keep_p, keep_q = passage != 0, question != 0
        h = self.encoder(self.embedding(passage), keep_p)
        u = self.encoder(self.embedding(question), keep_q)
        g = self.attention(h, u, keep_p, keep_q)
        m = self.modelling(g, keep_p)
        start = self.start(torch.cat([g, m], dim=2)).squeeze(2).masked_fill(~keep_p, -1e9)
        begin = (start.softmax(1)[:, None] @ m).expand_as(m)
        end = self.end(torch.cat([g, m, m * begin], dim=2)).squeeze(2).masked_fill(~keep_p, -1e9)
        return {"start": start, "end": end}
