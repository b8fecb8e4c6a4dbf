import torch
import torch.nn.functional as F
from torch import nn


class LinearChain(nn.Module):
    def __init__(self, tags):
        super().__init__()
        self.trans = nn.Parameter(0.05 * torch.randn(tags, tags))
        self.first = nn.Parameter(0.05 * torch.randn(tags))
        self.last = nn.Parameter(0.05 * torch.randn(tags))

    def path_score(self, emit, tags, mask):
        rows = torch.arange(len(tags), device=tags.device)
        score = self.first[tags[:, 0]] + emit[rows, 0, tags[:, 0]]
        for t in range(1, tags.shape[1]):
            move = self.trans[tags[:, t - 1], tags[:, t]] + emit[rows, t, tags[:, t]]
            score = score + move * mask[:, t]
        final = tags[rows, mask.sum(dim=1) - 1]
        return score + self.last[final]

    def partition(self, emit, mask):
        alpha = self.first + emit[:, 0]
        for t in range(1, emit.shape[1]):
            score = alpha.unsqueeze(2) + self.trans + emit[:, t].unsqueeze(1)
            alpha = torch.where(mask[:, t - 1].unsqueeze(1), score.logsumexp(dim=1), alpha)
        return torch.logsumexp(alpha + self.last, dim=1)

    def forward(self, emit, tags, mask):
        return self.partition(emit, mask) - self.path_score(emit, tags, mask)


class Net(nn.Module):
    def __init__(self, vocab=60, tags=5):
        super().__init__()
        self.embed = nn.Embedding(vocab, 20)
        self.context = nn.Conv1d(20, 24, 3, padding=1)
        self.emit = nn.Linear(24, tags)
        self.crf = LinearChain(tags)

    def forward(self, words, tags):
        mask = words > 0
        x = self.embed(words) * mask.unsqueeze(-1)
        x = F.relu(self.context(x.mT)).mT
        return self.crf(self.emit(x), tags.long(), mask)


def weighted(nll, trust):
    return (trust.flatten() * nll).mean()
