"""Language model on Mogrifier LSTMs (Melis et al. 2020), AR/TAR regularised, tied output."""

import torch
import torch.nn.functional as F
from torch import nn


class Mogrifier(nn.Module):
    def __init__(self, dim, hidden, rounds, rank):
        super().__init__()
        sizes = [(hidden, dim) if i % 2 == 0 else (dim, hidden) for i in range(rounds)]
        self.factors = nn.ModuleList(
            nn.Sequential(nn.Linear(a, rank, bias=False), nn.Linear(rank, b, bias=False)) for a, b in sizes
        )

    def forward(self, x, h):
        for i, gate in enumerate(self.factors):
            if i % 2 == 0:
                x = 2 * torch.sigmoid(gate(h)) * x
            else:
                h = 2 * torch.sigmoid(gate(x)) * h
        return x, h


class MogrifierLSTM(nn.Module):
    """One layer with a coupled input gate; state is frozen where `mask` is false."""

    def __init__(self, dim, hidden, rounds=4, rank=8):
        super().__init__()
        self.hidden = hidden
        self.mogrify = Mogrifier(dim, hidden, rounds, rank)
        self.x2h = nn.Linear(dim, 3 * hidden)
        self.h2h = nn.Linear(hidden, 3 * hidden, bias=False)

    def forward(self, x, mask):
        h = c = x.new_zeros(x.size(0), self.hidden)
        outputs = []
        for x_t, keep in zip(x.unbind(1), mask.unsqueeze(-1).unbind(1)):
            u, v = self.mogrify(x_t, h)
            f, g, o = (self.x2h(u) + self.h2h(v)).chunk(3, dim=-1)
            c_new = torch.lerp(g.tanh(), c, f.sigmoid())
            h_new = o.sigmoid() * c_new.tanh()
            h, c = torch.where(keep, h_new, h), torch.where(keep, c_new, c)
            outputs.append(h)
        return torch.stack(outputs, dim=1)


class MogrifierLM(nn.Module):
    def __init__(self, vocab=80, dim=24, hidden=32, cap=15.0):
        super().__init__()
        self.cap = cap
        self.decoder_bias = nn.Parameter(torch.zeros(vocab))
        self.encoder = nn.Embedding(vocab, dim)
        nn.init.normal_(self.encoder.weight, std=0.3)
        self.rnns = nn.ModuleList([MogrifierLSTM(dim, hidden), MogrifierLSTM(hidden, hidden)])
        self.bottleneck = nn.Linear(hidden, dim, bias=False)
        self.norm = nn.RMSNorm(dim, eps=1e-6)

    def features(self, tokens):
        mask = tokens.ne(0)
        low = self.rnns[0](self.encoder(tokens), mask)
        return low + self.rnns[1](low, mask), mask

    def decode(self, h):
        z = F.linear(self.norm(self.bottleneck(h)), self.encoder.weight, self.decoder_bias)
        return self.cap * torch.tanh(z / self.cap)

    def forward(self, tokens):
        return self.decode(self.features(tokens)[0])


def build():
    return MogrifierLM()


def step(model, batch, alpha=0.2, beta=0.1):
    tokens, following = batch
    h, mask = model.features(tokens)
    ce = F.cross_entropy(model.decode(h).flatten(0, 1), following.flatten().long(), ignore_index=0)
    ar = h[mask].pow(2).mean()
    pairs = mask[:, 1:] & mask[:, :-1]
    tar = (h[:, 1:] - h[:, :-1])[pairs].pow(2).mean()
    return ce + alpha * ar + beta * tar
