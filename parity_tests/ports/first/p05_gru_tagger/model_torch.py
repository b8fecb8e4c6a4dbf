import torch
from torch import nn


class Tagger(nn.Module):
    """Sequence first inside, as nn.GRU is by default."""

    def __init__(self, vocabulary=90, tags=5):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, 24)
        self.rnn = nn.GRU(24, 32, num_layers=2)
        self.project = nn.Linear(32, 24)
        self.out = nn.Linear(24, tags)

    def forward(self, words):
        states, _ = self.rnn(self.embed(words).transpose(0, 1))
        return self.out(torch.tanh(self.project(states))).transpose(0, 1)
