import torch
from torch import nn


class FieldEmbedding(nn.Module):
    """One table for all the fields, addressed with offsets."""

    def __init__(self, sizes, dim):
        super().__init__()
        offsets = torch.tensor([0] + list(sizes[:-1])).cumsum(0)
        self.register_buffer("offsets", offsets, persistent=False)
        self.table = nn.Embedding(sum(sizes), dim)
        nn.init.uniform_(self.table.weight, -0.05, 0.05)

    def forward(self, ids):
        return self.table(ids + self.offsets)


class Bilinear(nn.Module):
    def __init__(self, n_fields, dim):
        super().__init__()
        self.maps = nn.ModuleList(nn.Linear(dim, dim, bias=False) for _ in range(n_fields - 1))

    def forward(self, v):
        out = []
        for i, m in enumerate(self.maps):
            # all partners to the right of field i at once
            out.append((m(v[:, i]).unsqueeze(1) * v[:, i + 1 :]).flatten(1))
        return torch.cat(out, dim=1)


class SENet(nn.Module):
    def __init__(self, n_fields, ratio=2):
        super().__init__()
        mid = max(1, n_fields // ratio)
        self.gate = nn.Sequential(
            nn.Linear(n_fields, mid, bias=False),
            nn.ReLU(),
            nn.Linear(mid, n_fields, bias=False),
            nn.ReLU(),
        )

    def forward(self, v):
        return v * self.gate(v.mean(-1)).unsqueeze(-1)


class FiBiNET(nn.Module):
    SIZES = (40, 25, 8, 7, 5)

    def __init__(self, dim=8, n_dense=3, hidden=(48, 24)):
        super().__init__()
        f = len(self.SIZES)
        self.first_order = FieldEmbedding(self.SIZES, 1)
        self.dense_first = nn.Linear(n_dense, 1)
        self.embedding = FieldEmbedding(self.SIZES, dim)
        self.se = SENet(f)
        self.cross_plain = Bilinear(f, dim)
        self.cross_se = Bilinear(f, dim)
        width = f * (f - 1) * dim + n_dense
        layers = []
        for h in hidden:
            layers += [nn.Linear(width, h), nn.ReLU(inplace=True)]
            width = h
        self.mlp = nn.Sequential(*layers, nn.Linear(width, 1, bias=False))

    def forward(self, store, category, segment, weekday, channel, basket):
        ids = torch.cat([store, category, segment, weekday, channel], dim=1).long()
        dense = torch.log1p(basket)
        v = self.embedding(ids)
        deep = self.mlp(torch.cat([self.cross_plain(v), self.cross_se(self.se(v)), dense], dim=1))
        wide = self.first_order(ids).sum(1) + self.dense_first(dense)
        return torch.sigmoid(wide + deep)


def build():
    return FiBiNET()
