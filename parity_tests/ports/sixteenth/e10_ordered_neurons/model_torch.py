import torch
from torch import nn


class ONLSTM(nn.Module):
    """Gates, from the front: master forget, master input (a share of the units each), forget, input, output, candidate."""

    def __init__(self, inputs, hidden, chunk):
        super().__init__()
        self.hidden, self.chunk = hidden, chunk
        self.levels = hidden // chunk
        gates = 4 * hidden + 2 * self.levels
        self.ih = nn.Linear(inputs, gates)
        self.hh = nn.Linear(hidden, gates, bias=False)
        self.start = nn.Parameter(torch.zeros(2, hidden))

    def forward(self, x):
        h, c = (state.expand(len(x), -1) for state in self.start)
        outputs = []
        for z in self.ih(x).unbind(1):
            z = z + self.hh(h)
            masters, gates, candidate = z.split([2 * self.levels, 3 * self.hidden, self.hidden], dim=1)
            masters = masters.unflatten(1, (2, self.levels)).softmax(-1).cumsum(-1)
            masters = masters.repeat_interleave(self.chunk, dim=2)
            f_master, i_master = masters[:, 0], 1 - masters[:, 1]
            f, i, o = gates.sigmoid().chunk(3, dim=1)
            both = f_master * i_master
            c = (f_master + both * (f - 1)) * c + (i_master + both * (i - 1)) * candidate.tanh()
            h = o * c.tanh()
            outputs.append(h)
        return torch.stack(outputs, 1)


class LanguageModel(nn.Module):
    def __init__(self, vocabulary=18, embedding=14):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, embedding)
        self.drop_words = nn.Dropout1d(0.2)
        self.drop = nn.Dropout(0.3)
        self.layers = nn.ModuleList([ONLSTM(embedding, 24, 4), ONLSTM(24, 16, 4)])
        self.out = nn.Linear(16, vocabulary)

    def forward(self, tokens):
        x = self.embed(tokens)
        x = self.drop_words(x.transpose(1, 2)).transpose(1, 2)  # whole features, over all words
        x = self.drop(self.layers[0](x))
        return self.out(self.layers[1](x))
