import torch
from torch import nn
from torch.nn import functional as F


class MaskedLSTM(nn.Module):
    """Where a step is padding, state and output stay what they were; all steps are real where no mask is given."""

    def __init__(self, inputs, units):
        super().__init__()
        self.units = units
        self.inputs = nn.Linear(inputs, 4 * units)
        self.recurrent = nn.Linear(units, 4 * units, bias=False)

    def forward(self, x, real=None, state=None):
        if real is None:
            real = x.new_ones(x.shape[:2], dtype=torch.bool)
        h, c = state if state is not None else (x.new_zeros(len(x), self.units),) * 2
        projected = self.inputs(x)
        outputs, last = [], torch.zeros_like(h)
        for t in range(x.shape[1]):
            i, f, g, o = (projected[:, t] + self.recurrent(h)).chunk(4, -1)
            new_c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            new_h = o.sigmoid() * new_c.tanh()
            keep = real[:, t, None]
            h, c = torch.where(keep, new_h, h), torch.where(keep, new_c, c)
            last = torch.where(keep, new_h, last)
            outputs.append(last)
        return torch.stack(outputs, 1), (h, c)


class Translator(nn.Module):
    def __init__(self, words=40, width=16, units=22):
        super().__init__()
        self.source_table = nn.Embedding(words, width)
        self.target_table = nn.Embedding(words, width)
        self.encoder = MaskedLSTM(width, units)
        self.decoder = MaskedLSTM(width, units)
        self.bridge_h = nn.Linear(units, units)
        self.bridge_c = nn.Linear(units, units)
        self.attention = nn.Parameter(torch.randn(units) / units**0.5)
        self.mix = nn.Linear(2 * units, 24)
        self.words = nn.Linear(24, words)

    def attend(self, query, memory, real_query, real_memory):
        scores = torch.tanh(query[:, :, None] + memory[:, None]) @ self.attention
        scores = scores.masked_fill(~real_memory[:, None], float("-inf"))
        return scores.softmax(-1) @ memory * real_query[..., None]

    def forward(self, source, previous):
        real_source, real_previous = source != 0, previous != 0
        memory, (h, c) = self.encoder(self.source_table(source), real_source)
        state = self.bridge_h(h).tanh(), self.bridge_c(c)
        y, _ = self.decoder(self.target_table(previous), state=state)
        y = torch.cat([y, self.attend(y, memory, real_previous, real_source)], -1)
        return self.words(self.mix(y).tanh())


def word_loss(outputs, targets):
    return F.cross_entropy(outputs.flatten(0, 1), targets.flatten().long(), ignore_index=0)
