"""PyTorch port of the tagger: an encoder of emissions, and the field as a module of its own."""

import torch
from torch import nn


class LinearChainCRF(nn.Module):
    def __init__(self, tags):
        super().__init__()
        self.trans = nn.Parameter(torch.empty(tags, tags))
        self.begin = nn.Parameter(torch.zeros(tags))
        self.finish = nn.Parameter(torch.zeros(tags))
        nn.init.xavier_uniform_(self.trans)

    def path(self, unary, tags, valid):
        total = self.begin[tags[:, 0]] + unary[:, 0].gather(1, tags[:, :1]).squeeze(1)
        for t in range(1, tags.shape[1]):
            here = unary[:, t].gather(1, tags[:, t : t + 1]).squeeze(1)
            total = total + (here + self.trans[tags[:, t - 1], tags[:, t]]) * valid[:, t]
        return total + self.finish[tags[:, -1]]

    def log_z(self, unary, valid):
        score = self.begin + unary[:, 0]
        for t in range(1, unary.shape[1]):
            # rows: where a path arrives; columns: where it comes from
            arrivals = score.unsqueeze(1) + self.trans + unary[:, t].unsqueeze(2)
            score = torch.where(valid[:, t : t + 1], torch.logsumexp(arrivals, dim=2), score)
        return torch.logsumexp(score + self.finish, dim=1)

    def forward(self, unary, tags, valid):
        return (self.log_z(unary, valid) - self.path(unary, tags, valid)).mean()


class Net(nn.Module):
    def __init__(self, vocabulary=30, width=12, hidden=24, tags=5):
        super().__init__()
        self.words = nn.Embedding(vocabulary, width, padding_idx=0)
        self.near = nn.Conv1d(width, hidden, 3, padding=1)
        self.far = nn.Conv1d(hidden, hidden, 3, padding=2, dilation=2)
        self.unary = nn.Linear(hidden, tags)
        self.crf = LinearChainCRF(tags)

    def forward(self, tokens):
        valid = tokens.ne(0).unsqueeze(1)
        x = self.words(tokens).transpose(1, 2)
        x = self.near(x).relu() * valid
        x = self.far(x).relu() + x
        return self.unary(x.transpose(1, 2))


def step(model, batch):
    tokens, tags = batch
    return model.crf(model(tokens), tags.long(), tokens.ne(0))
