"""A pointer-generator network with coverage in PyTorch."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class Attention(nn.Module):
    def __init__(self, state, text, units):
        super().__init__()
        self.of_state = nn.Linear(state, units, bias=False)
        self.of_text = nn.Linear(text, units)
        self.of_coverage = nn.Linear(1, units, bias=False)
        self.score = nn.Linear(units, 1, bias=False)

    def forward(self, state, text, coverage, mask):
        x = self.of_state(state).unsqueeze(1) + self.of_text(text) + self.of_coverage(coverage.unsqueeze(-1))
        scores = self.score(torch.tanh(x)).squeeze(-1)
        return scores.softmax(-1) * mask


class Net(nn.Module):
    def __init__(self, vocabulary=30, extra=5, width=16, units=20):
        super().__init__()
        self.extra = extra
        self.embedding = nn.Embedding(vocabulary, width)
        self.encoder = nn.GRU(width, units, batch_first=True)
        self.decoder = nn.GRUCell(width, units)
        self.attention = Attention(units, units, 16)
        self.generator = nn.Linear(2 * units, vocabulary)
        self.switch = nn.Linear(2 * units + width, 1)

    def encode(self, source, mask):
        packed = pack_padded_sequence(
            self.embedding(source), mask.sum(1).cpu(), batch_first=True, enforce_sorted=False
        )
        text, state = self.encoder(packed)
        text, _ = pad_packed_sequence(text, batch_first=True, total_length=source.shape[1])
        return text, state[0]

    def forward(self, source, source_ext, begin):
        mask = source != 0
        text, state = self.encode(source, mask)
        coverage = torch.zeros_like(text[..., 0])
        words, repeated = [], []
        for word in self.embedding(begin).unbind(1):
            state = self.decoder(word, state)
            attention = self.attention(state, text, coverage, mask)
            coverage = coverage + attention
            repeated.append(torch.minimum(attention, coverage).sum(-1))
            context = (attention.unsqueeze(1) @ text).squeeze(1)
            features = torch.cat([state, context], dim=-1)
            new = self.switch(torch.cat([features, word], dim=-1)).sigmoid()
            generated = F.pad(new * self.generator(features).softmax(-1), (0, self.extra))
            words.append(generated.scatter_add(1, source_ext.long(), (1 - new) * attention))
        return {"words": torch.stack(words, dim=1), "coverage": torch.stack(repeated, dim=1)}


def loss(outputs, targets):
    words, mask = targets["words"].long(), targets["coverage"]
    probability = outputs["words"].gather(-1, words.unsqueeze(-1)).squeeze(-1)
    each = outputs["coverage"] - (probability + 1e-10).log()
    return ((mask * each).sum(1) / mask.sum(1)).mean()
