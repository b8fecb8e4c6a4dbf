import math

import torch
from torch import nn


class Factorization(nn.Module):
    def __init__(self, users=24, items=18, factors=6):
        super().__init__()
        self.tables = nn.ModuleDict(
            {
                "p": nn.Embedding(users, factors),
                "q": nn.Embedding(items, factors),
                "b_user": nn.Embedding(users, 1),
                "b_item": nn.Embedding(items, 1),
            }
        )
        self.daytime = nn.Linear(2, 1, bias=False)
        self.mu = nn.Parameter(torch.full((1,), 3.0))
        for table in self.tables.values():
            nn.init.uniform_(table.weight, -0.05, 0.05)

    def lookup(self, user, item):
        t = self.tables
        user, item = user.long().view(-1), item.long().view(-1)
        return t["p"](user), t["q"](item), t["b_user"](user), t["b_item"](item)

    def combine(self, p, q, bu, bi, hour):
        angle = hour * (2 * math.pi / 24)
        clock = torch.cat([angle.sin(), angle.cos()], dim=-1)
        return self.mu + bu + bi + self.daytime(clock) + torch.einsum("bk,bk->b", p, q)[:, None]

    def forward(self, user, item, hour):
        return self.combine(*self.lookup(user, item), hour)


def build():
    return Factorization()


def training_loss(model, batch, reg=0.02, bias_reg=0.005):
    inputs, rating = batch
    p, q, bu, bi = model.lookup(inputs["user"], inputs["item"])
    error = model.combine(p, q, bu, bi, inputs["hour"]).squeeze(-1) - rating.view(-1)
    penalty = reg * (p.pow(2).sum(-1) + q.pow(2).sum(-1)) + bias_reg * (bu.pow(2) + bi.pow(2)).squeeze(-1)
    return (error.pow(2) + penalty).mean()
