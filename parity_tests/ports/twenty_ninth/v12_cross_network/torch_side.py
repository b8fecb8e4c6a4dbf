"""DCN-V2 with PLR (periodic -> linear -> relu) numeric embeddings."""

import torch
from torch import Tensor, nn


class PLR(nn.Module):
    def __init__(self, n: int, k: int, d: int) -> None:
        super().__init__()
        self.coef = nn.Parameter(torch.normal(0.0, 0.3, (n, k)))
        self.weight = nn.Parameter(torch.randn(n, 2 * k, d) * 0.3)
        self.bias = nn.Parameter(torch.zeros(n, d))

    def forward(self, x: Tensor) -> Tensor:
        v = 2 * torch.pi * self.coef * x.unsqueeze(-1)
        v = torch.cat([torch.cos(v), torch.sin(v)], dim=-1)
        v = (v.unsqueeze(-2) @ self.weight).squeeze(-2) + self.bias
        return torch.relu(v)


class CrossNet(nn.Module):
    def __init__(self, d: int, depth: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(d, d) for _ in range(depth))

    def forward(self, x0: Tensor) -> Tensor:
        x = x0
        for lin in self.layers:
            x = torch.addcmul(x, x0, lin(x))
        return x


class Scorer(nn.Module):
    def __init__(self, n_num: int = 5, cards=(4, 6), k: int = 4, d: int = 3) -> None:
        super().__init__()
        self.plr = PLR(n_num, k, d)
        self.tables = nn.ModuleList(nn.Embedding(c, d) for c in cards)
        width = d * (n_num + len(cards))
        self.cross = CrossNet(width, 2)
        self.deep = nn.Sequential(nn.Linear(width, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU())
        self.logit = nn.Linear(width + 8, 1)

    def forward(self, num: Tensor, cat: Tensor) -> Tensor:
        cols = [self.plr(num).flatten(1)]
        cols += [table(cat[:, j].long()) for j, table in enumerate(self.tables)]
        x0 = torch.cat(cols, dim=1)
        return self.logit(torch.cat([self.cross(x0), self.deep(x0)], dim=1))


def build() -> nn.Module:
    return Scorer()
