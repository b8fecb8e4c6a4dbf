import torch
from torch import nn


def mlp(sizes, last_relu):
    layers = []
    for n, (a, b) in enumerate(zip(sizes, sizes[1:])):
        layers.append(nn.Linear(a, b))
        if last_relu or n < len(sizes) - 2:
            layers.append(nn.ReLU())
    return nn.Sequential(*layers)


class DLRM(nn.Module):
    def __init__(self, cardinalities, dim=8, num_genres=10, num_dense=5):
        super().__init__()
        self.tables = nn.ModuleDict({k: nn.Embedding(n, dim) for k, n in cardinalities.items()})
        self.biases = nn.ModuleDict({k: nn.Embedding(n, 1) for k, n in cardinalities.items()})
        self.genres = nn.Parameter(torch.empty(num_genres, dim))
        nn.init.xavier_uniform_(self.genres)
        self.bottom = mlp([num_dense, 16, dim], last_relu=True)
        vectors = 2 + len(cardinalities)
        self.top = mlp([dim + vectors * (vectors - 1) // 2, 24, 12, 1], last_relu=False)
        self.register_buffer("pairs", torch.tril_indices(vectors, vectors, -1), persistent=False)

    def forward(self, user, item, genres, dense):
        ids = {"user": user, "item": item}
        d = self.bottom(dense)
        stacked = torch.stack(
            [d] + [self.tables[k](v) for k, v in ids.items()] + [genres @ self.genres], dim=1
        )
        gram = stacked @ stacked.mT
        x = torch.cat([d, gram[:, self.pairs[0], self.pairs[1]]], dim=1)
        return self.top(x) + sum(self.biases[k](v) for k, v in ids.items())


def build():
    return DLRM({"user": 40, "item": 50})
