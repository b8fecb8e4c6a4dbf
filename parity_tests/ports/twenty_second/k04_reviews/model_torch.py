import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, vocab=50, dim=12, filters=16, classes=3):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.conv = nn.Conv1d(dim, filters, 3, padding=1)
        self.transform = nn.Linear(filters, filters)
        self.gate = nn.Linear(filters, filters)
        self.out = nn.Linear(2 * filters, classes)
        nn.init.constant_(self.gate.bias, -1.0)

    def highway(self, h):
        c = self.transform(h).relu()
        t = self.gate(c).sigmoid()
        return h + t * (c - h)

    def forward(self, tokens):
        m = (tokens != 0).unsqueeze(-1)
        e = self.emb(tokens) * m
        h = self.conv(e.transpose(1, 2)).tanh().transpose(1, 2)
        h = self.highway(h) * m
        top = h.amax(dim=1)
        mean = h.sum(dim=1) / m.sum(dim=1)
        return self.out(torch.cat([top, mean], dim=-1))
