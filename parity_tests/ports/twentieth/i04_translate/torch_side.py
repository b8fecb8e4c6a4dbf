import torch
from torch import nn


class Cell(nn.Module):
    def __init__(self, inputs, units):
        super().__init__()
        self.x2h = nn.Linear(inputs, 4 * units)
        self.h2h = nn.Linear(units, 4 * units, bias=False)

    def forward(self, x, h, c):
        i, f, g, o = (self.x2h(x) + self.h2h(h)).chunk(4, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.source_words = nn.Embedding(30, 16)
        self.target_words = nn.Embedding(25, 12)
        self.encoder = Cell(16, 24)
        self.decoder = Cell(12, 24)
        self.mix = nn.Linear(48, 20)
        self.vocabulary = nn.Linear(20, 25)

    def forward(self, source, before):
        real = source.ne(0)
        x = self.source_words(source.long())
        h = c = x.new_zeros(len(x), 24)
        memory = []
        for t in range(x.shape[1]):
            new_h, new_c = self.encoder(x[:, t], h, c)
            here = real[:, t, None]
            h, c = torch.where(here, new_h, h), torch.where(here, new_c, c)
            memory.append(h)
        memory = torch.stack(memory, 1)
        outputs = []
        for word in self.target_words(before.long()).unbind(1):
            h, c = self.decoder(word, h, c)
            scores = (memory @ h[:, :, None])[..., 0]
            share = scores.masked_fill(~real, -torch.inf).softmax(-1)
            context = torch.einsum("bs,bsd->bd", share, memory)
            outputs.append(self.vocabulary(self.mix(torch.cat([context, h], -1)).tanh()))
        return torch.stack(outputs, 1)
