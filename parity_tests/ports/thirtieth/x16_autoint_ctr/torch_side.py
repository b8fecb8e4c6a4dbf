"""AutoInt click model in PyTorch."""

import torch
import torch.nn.functional as F
from torch import nn

CARDS = (12, 7, 20, 5, 9, 15)
TAGS, N_DENSE, DIM, HEADS = 18, 4, 12, 2


class Interacting(nn.Module):
    def __init__(self):
        super().__init__()
        self.mha = nn.MultiheadAttention(DIM, HEADS, batch_first=True)
        self.res = nn.Linear(DIM, DIM, bias=False)

    def forward(self, x):
        att, _ = self.mha(x, x, x, need_weights=False)
        return F.relu(att + self.res(x))


class AutoInt(nn.Module):
    def __init__(self):
        super().__init__()
        rows = sum(CARDS)
        offsets = torch.tensor((0,) + CARDS[:-1]).cumsum(0)
        self.register_buffer("offsets", offsets)
        self.cat_embed = nn.Embedding(rows, DIM)
        self.tag_embed = nn.EmbeddingBag(TAGS, DIM, mode="mean", padding_idx=0)
        self.numeric = nn.Parameter(torch.empty(N_DENSE, DIM).uniform_(-0.05, 0.05))
        self.interactions = nn.Sequential(Interacting(), Interacting())
        self.deep = nn.Linear((len(CARDS) + 1 + N_DENSE) * DIM, 1)
        self.wide_cat = nn.Embedding(rows, 1)
        self.wide_dense = nn.Linear(N_DENSE, 1, bias=False)

    def forward(self, cats, tags, dense):
        ids = cats.long() + self.offsets
        fields = torch.cat(
            [
                self.cat_embed(ids),
                self.tag_embed(tags.long()).unsqueeze(1),
                dense.unsqueeze(-1) * self.numeric,
            ],
            dim=1,
        )
        deep = self.deep(self.interactions(fields).flatten(1))
        return deep + self.wide_cat(ids).sum(1) + self.wide_dense(dense)


def build():
    return AutoInt()


def optimizer(params):
    return torch.optim.Adagrad(params, lr=0.05, eps=1e-10)
