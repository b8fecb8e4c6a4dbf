"""Hierarchical attention in PyTorch, on packed sequences."""

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class Level(nn.Module):
    """What a sequence says: a GRU in both directions, and attention over its outputs."""

    def __init__(self, inputs, units, attention):
        super().__init__()
        self.rnn = nn.GRU(inputs, units, batch_first=True, bidirectional=True)
        self.attention = nn.Sequential(
            nn.Linear(2 * units, attention), nn.Tanh(), nn.Linear(attention, 1, bias=False)
        )

    def forward(self, x, lengths):
        # An empty sequence is taken as one of a single step; the level above leaves it out.
        packed = pack_padded_sequence(x, lengths.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False)
        outputs, _ = self.rnn(packed)
        outputs, _ = pad_packed_sequence(outputs, batch_first=True, total_length=x.shape[1])
        beyond = torch.arange(x.shape[1], device=x.device) >= lengths.clamp(min=1).unsqueeze(1)
        scores = self.attention(outputs).squeeze(-1).masked_fill(beyond, float("-inf"))
        return torch.einsum("bt,btd->bd", scores.softmax(-1), outputs)


class Net(nn.Module):
    def __init__(self, vocabulary=40, stars=4):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, 12)
        self.sentence = Level(12, 10, 14)
        self.review = Level(20, 8, 12)
        self.out = nn.Linear(16, stars)

    def forward(self, words):
        lengths = (words != 0).sum(-1)
        x = self.sentence(self.embedding(words.flatten(0, 1)), lengths.flatten())
        x = self.review(x.unflatten(0, words.shape[:2]), (lengths > 0).sum(1))
        return self.out(x)
