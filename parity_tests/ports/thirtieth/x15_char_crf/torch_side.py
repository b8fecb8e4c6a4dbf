"""Char-CNN + highway -> BiLSTM -> CRF."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

WORDS, CHARS, ALPHABET, TAGS = 10, 8, 30, 5
L2 = 1e-3


class Highway(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.h = nn.Linear(dim, dim)
        self.t = nn.Linear(dim, dim)
        nn.init.constant_(self.t.bias, -1.0)

    def forward(self, x):
        return torch.lerp(x, F.relu(self.h(x)), torch.sigmoid(self.t(x)))

    def penalty(self):
        return L2 * (self.h.weight.square().sum() + self.t.weight.square().sum())


class CRF(nn.Module):
    def __init__(self):
        super().__init__()
        self.start = nn.Parameter(torch.zeros(TAGS))
        self.end = nn.Parameter(torch.zeros(TAGS))
        self.transitions = nn.Parameter(torch.empty(TAGS, TAGS).uniform_(-0.1, 0.1))

    def path_score(self, emissions, tags, length):
        rows = torch.arange(len(tags), device=tags.device)
        keep = torch.arange(WORDS, device=tags.device) < length[:, None]
        tags = tags.clamp(min=0)
        emit = emissions.gather(2, tags.unsqueeze(-1)).squeeze(-1).masked_fill(~keep, 0).sum(1)
        move = self.transitions[tags[:, :-1], tags[:, 1:]].masked_fill(~keep[:, 1:], 0).sum(1)
        return emit + move + self.start[tags[:, 0]] + self.end[tags[rows, length - 1]]

    def log_partition(self, emissions, length):
        alphas = [self.start + emissions[:, 0]]
        for t in range(1, WORDS):
            alphas.append(
                torch.logsumexp(alphas[-1].unsqueeze(2) + self.transitions, dim=1) + emissions[:, t]
            )
        # every sentence reads its own last real step
        alphas = torch.stack(alphas, dim=1)
        final = alphas[torch.arange(len(length), device=length.device), length - 1]
        return torch.logsumexp(final + self.end, dim=1)

    def forward(self, emissions, tags):
        length = (tags >= 0).sum(1)
        return (self.log_partition(emissions, length) - self.path_score(emissions, tags, length)).mean()


class CharTagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(ALPHABET, 8)
        self.convs = nn.ModuleList([nn.Conv1d(8, 6, 2), nn.Conv1d(8, 8, 3)])
        self.highway = Highway(14)
        self.rnn = nn.LSTM(14, 10, batch_first=True, bidirectional=True)
        # Keras has one LSTM bias: the second one stays zero and is not trained
        for p in (self.rnn.bias_hh_l0, self.rnn.bias_hh_l0_reverse):
            nn.init.zeros_(p)
            p.requires_grad_(False)
        self.emit = nn.Linear(20, TAGS)
        self.crf = CRF()

    def forward(self, x):
        x = x.long()
        real = x != 0
        length = real.any(-1).sum(1).cpu()
        c = self.embed(x) * real.unsqueeze(-1)
        c = c.flatten(0, 1).transpose(1, 2)
        w = torch.cat([torch.tanh(conv(c)).amax(2) for conv in self.convs], dim=1)
        w = self.highway(w.unflatten(0, (-1, WORDS)))
        packed = pack_padded_sequence(w, length, batch_first=True, enforce_sorted=False)
        h, _ = pad_packed_sequence(self.rnn(packed)[0], batch_first=True, total_length=WORDS)
        return self.emit(h)


def step(model, batch):
    x, y = batch
    return model.crf(model(x), y.long()) + model.highway.penalty()


def build():
    return CharTagger()
