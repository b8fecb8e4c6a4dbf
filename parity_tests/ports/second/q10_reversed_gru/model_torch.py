import torch
from torch import nn


class Tagger(nn.Module):
    def __init__(self, vocabulary=30, units=20, tags=5):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, 16)
        self.past = nn.GRU(16, units, batch_first=True)
        self.future = nn.GRU(16, units, batch_first=True)
        self.hidden = nn.Linear(2 * units, 24)
        self.tags = nn.Linear(24, tags)

    def forward(self, x):
        e = self.embedding(x)
        past, _ = self.past(e)
        future, _ = self.future(torch.flip(e, dims=[1]))
        h = torch.cat([past, future], dim=-1)
        return self.tags(torch.relu(self.hidden(h)))
