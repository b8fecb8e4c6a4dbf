"""Set Transformer in PyTorch."""

import torch
import torch.nn.functional as F
from torch import nn

CELLS, MARKERS, DIM, HEADS, INDUCING = 16, 5, 16, 4, 6


class MAB(nn.Module):
    def __init__(self, dim_q, dim_k):
        super().__init__()
        self.fc_q = nn.Linear(dim_q, DIM)
        self.fc_k = nn.Linear(dim_k, DIM)
        self.fc_v = nn.Linear(dim_k, DIM)
        self.fc_o = nn.Linear(DIM, DIM)
        self.ln0 = nn.LayerNorm(DIM)
        self.ln1 = nn.LayerNorm(DIM)

    def forward(self, queries, keys):
        def split(z):
            return z.unflatten(-1, (HEADS, DIM // HEADS)).transpose(1, 2)

        q = self.fc_q(queries)
        o = F.scaled_dot_product_attention(split(q), split(self.fc_k(keys)), split(self.fc_v(keys)))
        o = self.ln0(q + o.transpose(1, 2).flatten(2))
        return self.ln1(o + F.relu(self.fc_o(o)))


class ISAB(nn.Module):
    def __init__(self, dim_in):
        super().__init__()
        self.points = nn.Parameter(torch.empty(1, INDUCING, DIM))
        nn.init.xavier_uniform_(self.points)
        self.mab0 = MAB(DIM, dim_in)
        self.mab1 = MAB(dim_in, DIM)

    def forward(self, x):
        h = self.mab0(self.points.expand(x.shape[0], -1, -1), x)
        return self.mab1(x, h)


class PMA(nn.Module):
    def __init__(self, seeds):
        super().__init__()
        self.seeds = nn.Parameter(torch.empty(1, seeds, DIM))
        nn.init.xavier_uniform_(self.seeds)
        self.mab = MAB(DIM, DIM)

    def forward(self, x):
        return self.mab(self.seeds.expand(x.shape[0], -1, -1), x)


class SAB(nn.Module):
    def __init__(self):
        super().__init__()
        self.mab = MAB(DIM, DIM)

    def forward(self, x):
        return self.mab(x, x)


def build():
    return nn.Sequential(ISAB(MARKERS), ISAB(DIM), PMA(2), SAB(), nn.Flatten(), nn.Linear(2 * DIM, 1))
