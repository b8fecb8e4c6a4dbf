import torch
import torch.nn.functional as F
from torch import nn


class Ranker(nn.Module):
    def __init__(self, features=5, query_features=3, width=10):
        super().__init__()
        self.document = nn.Linear(features, width)
        self.gate = nn.Linear(query_features, width)
        # hidden layer in three parts: of a document itself, of its distance to the mean, of the list's largest
        self.own = nn.Linear(width, width)
        self.deviation = nn.Linear(width, width, bias=False)
        self.top = nn.Linear(width, width, bias=False)
        self.score = nn.Linear(width, 1)

    def forward(self, docs, query, listed):
        present = listed.bool().unsqueeze(-1)
        x = self.document(docs).tanh() * self.gate(query).sigmoid().unsqueeze(1)
        count = x.shape[1]
        mean = x.masked_fill(~present, 0.0).sum(dim=1, keepdim=True) / count
        top = x.masked_fill(~present, -1e3).amax(dim=1, keepdim=True)
        hidden = F.silu(self.own(x) + self.deviation(x - mean) + self.top(top))
        return self.score(hidden).squeeze(-1) * listed


def ranking_loss(scores, relevance, weights):
    valid = relevance >= 0
    target = relevance.softmax(dim=1).masked_fill(~valid, 0.0)
    logp = scores.masked_fill(~valid, -1e4).log_softmax(dim=1)
    listnet = -(target * logp).sum(dim=1)
    gain = (torch.exp2(relevance.clamp(min=0)) - 1) / 15.0
    better = (gain.unsqueeze(2) - gain.unsqueeze(1)).relu() * (valid.unsqueeze(2) & valid.unsqueeze(1))
    margin = scores.unsqueeze(2) - scores.unsqueeze(1)
    pairs = (better * F.softplus(-margin)).sum((1, 2)) / (better.sum((1, 2)) + 1e-3)
    value = listnet + 0.5 * pairs
    return (value * weights.view(-1)).sum() / weights.sum()
