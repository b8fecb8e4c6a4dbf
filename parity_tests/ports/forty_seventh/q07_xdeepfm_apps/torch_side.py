"""xDeepFM (Lian et al. 2018) over context, genres and numbers of an app store's impressions."""

from itertools import accumulate

import torch
import torch.nn.functional as F
from torch import nn

FIELD_SIZES = [40, 25, 60, 12, 7, 31]
NUMERIC_MEAN = [5.0, 0.3, 60.0, 2.0]
NUMERIC_STD = [2.0, 0.2, 25.0, 1.5]


class FieldEmbedding(nn.Module):
    def __init__(self, sizes, dim):
        super().__init__()
        self.embedding = nn.Embedding(sum(sizes), dim)
        self.register_buffer("offsets", torch.tensor([0, *accumulate(sizes[:-1])]), persistent=False)

    def forward(self, x):
        return self.embedding(x + self.offsets)


class NumericEmbedding(nn.Module):
    def __init__(self, n, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n, dim) * 0.05)
        self.bias = nn.Parameter(torch.zeros(n, dim))
        self.missing = nn.Parameter(torch.randn(n, dim) * 0.05)

    def forward(self, z):
        known = torch.addcmul(self.bias, z.nan_to_num().unsqueeze(-1), self.weight)
        return torch.where(z.isnan().unsqueeze(-1), self.missing, known)


class CompressedInteraction(nn.Module):
    def __init__(self, fields, sizes=(16, 16, 10)):
        super().__init__()
        hidden = [fields, *(s // 2 for s in sizes[:-1])]
        self.convs = nn.ModuleList(nn.Conv1d(fields * h, s, 1) for h, s in zip(hidden, sizes))

    def forward(self, x0):
        x, pooled = x0, []
        for conv in self.convs:
            z = torch.einsum("bid,bjd->bijd", x0, x).flatten(1, 2)
            y = F.relu(conv(z))
            if conv is not self.convs[-1]:
                x, y = y.chunk(2, dim=1)
            pooled.append(y.sum(-1))
        return torch.cat(pooled, dim=1)


class XDeepFM(nn.Module):
    def __init__(self, dim=8, genres=30):
        super().__init__()
        n = len(FIELD_SIZES) + 1 + len(NUMERIC_MEAN)
        self.register_buffer("mean", torch.tensor(NUMERIC_MEAN, dtype=torch.float32), persistent=False)
        self.register_buffer("std", torch.tensor(NUMERIC_STD, dtype=torch.float32), persistent=False)
        self.wide = FieldEmbedding(FIELD_SIZES, 1)
        self.categorical = FieldEmbedding(FIELD_SIZES, dim)
        self.genres = nn.EmbeddingBag(genres, dim, mode="mean", padding_idx=0)
        self.numeric = NumericEmbedding(len(NUMERIC_MEAN), dim)
        self.mlp = nn.Sequential(
            nn.Linear(n * dim, 48), nn.PReLU(48), nn.Linear(48, 24), nn.PReLU(24), nn.Linear(24, 1)
        )
        self.cin = CompressedInteraction(n)
        self.cin_head = nn.Linear(8 + 8 + 10, 1, bias=False)

    def squash(self, numbers):
        z = (numbers - self.mean) / self.std
        return torch.copysign(torch.log1p(z.abs()), z)

    def forward(self, context, genres, numbers):
        z = self.squash(numbers.nan_to_num())
        fields = torch.cat(
            [
                self.categorical(context),
                self.genres(genres).unsqueeze(1),
                self.numeric(z),
            ],
            dim=1,
        )
        return self.wide(context).sum(1) + self.cin_head(self.cin(fields)) + self.mlp(fields.flatten(1))


def build():
    return XDeepFM()


def loss(outputs, targets):
    clicked, weight = targets.to(outputs.dtype).unbind(1)
    bce = F.binary_cross_entropy_with_logits(outputs.squeeze(1), clicked, reduction="none")
    return (weight * bce).sum() / weight.sum()
