import torch
from torch import nn


class InterestAttention(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(4 * dim, hidden), nn.Sigmoid(), nn.Linear(hidden, 1))

    def forward(self, query, keys, pad):
        query = query.unsqueeze(1).expand_as(keys)
        scores = self.mlp(torch.cat((query, keys, query - keys, query * keys), dim=-1)).squeeze(-1)
        weights = scores.masked_fill(pad, -1e9).softmax(dim=1)
        return (weights.unsqueeze(1) @ keys).squeeze(1)


class ClickModel(nn.Module):
    def __init__(self, items=50, segments=6, item_dim=12, segment_dim=5, context=4):
        super().__init__()
        self.items = nn.Embedding(items, item_dim, padding_idx=0)
        self.segments = nn.Embedding(segments, segment_dim, padding_idx=0)
        self.attention = InterestAttention(item_dim, 16)
        self.tower = nn.Sequential(
            nn.Linear(2 * item_dim + segment_dim + context, 32),
            nn.PReLU(32),
            nn.Linear(32, 16),
            nn.PReLU(16),
            nn.Linear(16, 1),
        )

    def forward(self, history, candidate, segment, context):
        q = self.items(candidate)
        interest = self.attention(q, self.items(history), history == 0)
        return self.tower(torch.cat((interest, q, self.segments(segment), context), dim=1))


def build():
    return ClickModel()
