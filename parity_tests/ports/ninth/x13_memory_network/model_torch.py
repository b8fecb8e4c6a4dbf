import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, vocabulary=23, dim=12, hops=3, sentences=6, words=5):
        super().__init__()
        self.tables = nn.ModuleList([nn.Embedding(vocabulary, dim) for _ in range(hops + 1)])
        self.times = nn.ParameterList(
            [nn.Parameter(0.05 * torch.randn(sentences, dim)) for _ in range(hops + 1)]
        )
        j = torch.arange(1, words + 1, dtype=torch.float64).unsqueeze(1) / words
        k = torch.arange(1, dim + 1, dtype=torch.float64) / dim
        self.register_buffer("position", 1 - j - k * (1 - 2 * j), persistent=False)

    def bag(self, table, ids):
        vectors = table(ids).masked_fill((ids == 0).unsqueeze(-1), 0)
        return (vectors * self.position.to(vectors.dtype)).sum(-2)

    def forward(self, story, query):
        state = self.bag(self.tables[0], query)
        bags = [self.bag(table, story) + time for table, time in zip(self.tables, self.times)]
        padding = (story == 0).all(-1)
        for memory, content in zip(bags[:-1], bags[1:]):
            scores = (memory @ state.unsqueeze(-1)).squeeze(-1)
            attention = scores.masked_fill(padding, float("-inf")).softmax(-1)
            state = state + (attention.unsqueeze(-1) * content).sum(1)
        return state @ self.tables[-1].weight.T
