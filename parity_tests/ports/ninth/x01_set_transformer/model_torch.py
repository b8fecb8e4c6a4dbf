import math

import torch
import torch.nn.functional as F
from torch import nn


class MAB(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.dim, self.heads = dim, heads
        self.fc_q = nn.Linear(dim, dim)
        self.fc_k = nn.Linear(dim, dim)
        self.fc_v = nn.Linear(dim, dim)
        self.fc_o = nn.Linear(dim, dim)
        self.ln0 = nn.LayerNorm(dim)
        self.ln1 = nn.LayerNorm(dim)

    def forward(self, x, y, valid=None):
        q = self.fc_q(x)
        batch, n, _ = q.shape
        width = self.dim // self.heads
        queries = q.view(batch, n, self.heads, width).transpose(1, 2)
        keys = self.fc_k(y).view(batch, -1, self.heads, width).transpose(1, 2)
        values = self.fc_v(y).view(batch, -1, self.heads, width).transpose(1, 2)
        scores = queries @ keys.transpose(-2, -1) / math.sqrt(width)
        if valid is not None:
            scores = scores.masked_fill(valid[:, None, None, :] == 0, float("-inf"))
        heads = (scores.softmax(-1) @ values).transpose(1, 2).reshape(batch, n, self.dim)
        h = self.ln0(q + heads)
        return self.ln1(h + F.relu(self.fc_o(h)))


class ISAB(nn.Module):
    def __init__(self, dim, heads, points):
        super().__init__()
        self.inducing = nn.Parameter(torch.empty(points, dim))
        nn.init.xavier_uniform_(self.inducing)
        self.down = MAB(dim, heads)
        self.up = MAB(dim, heads)

    def forward(self, x, valid):
        h = self.down(self.inducing.expand(len(x), -1, -1), x, valid)
        return self.up(x, h)


class Net(nn.Module):
    def __init__(self, dim=16, heads=4):
        super().__init__()
        self.embed = nn.Linear(5, dim)
        self.blocks = nn.ModuleList([ISAB(dim, heads, 4) for _ in range(2)])
        self.seed = nn.Parameter(torch.empty(1, dim))
        nn.init.xavier_uniform_(self.seed)
        self.pool = MAB(dim, heads)
        self.head = nn.Linear(dim, 3)

    def forward(self, points, valid):
        x = self.embed(points)
        for block in self.blocks:
            x = block(x, valid)
        pooled = self.pool(self.seed.expand(len(x), -1, -1), x)
        return self.head(pooled.flatten(1))
