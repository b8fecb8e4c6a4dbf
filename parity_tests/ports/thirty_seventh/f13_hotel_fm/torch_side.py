import torch
import torch.nn as nn


class DeepFM(nn.Module):
    """One table for all fields (ids shifted by field); pairs by the square of the sum."""

    def __init__(self, sizes=(40, 12, 5), k=6):
        super().__init__()
        start = torch.tensor((0,) + sizes[:-1]).cumsum(0)
        self.register_buffer("start", start, persistent=False)
        self.table = nn.Embedding(sum(sizes), k)
        self.first = nn.Embedding(sum(sizes), 1)
        nn.init.normal_(self.table.weight, std=0.2)
        nn.init.normal_(self.first.weight, std=0.05)
        self.dense_vector = nn.Linear(3, k, bias=False)
        self.dense_linear = nn.Linear(3, 1)
        self.deep = nn.Sequential(
            nn.Linear(4 * k, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 1, bias=False)
        )

    def forward(self, hotel, country, channel, dense):
        ids = torch.stack([hotel, country, channel], dim=1).long() + self.start
        v = torch.cat([self.table(ids), self.dense_vector(dense).unsqueeze(1)], dim=1)
        second = 0.5 * (v.sum(1) ** 2 - (v**2).sum(1)).sum(1, keepdim=True)
        return self.first(ids).sum(1) + self.dense_linear(dense) + second + self.deep(v.flatten(1))


poisson = nn.PoissonNLLLoss(log_input=True, full=False)


def build():
    return DeepFM()
