"""PyTorch port of the ranking model, its loss and its optimizer."""

import torch
from torch import nn
from torch.nn import functional as F


class Items(nn.Module):
    def __init__(self, items, dim):
        super().__init__()
        self.vectors = nn.Embedding(items, dim)
        self.popularity = nn.Embedding(items, 1)
        nn.init.zeros_(self.popularity.weight)

    def forward(self, ids):
        return self.vectors(ids), self.popularity(ids).squeeze(-1)


class Net(nn.Module):
    def __init__(self, users=40, items=60, dim=12, hidden=20):
        super().__init__()
        self.users = nn.Embedding(users, dim)
        self.items = Items(items, dim)
        self.mlp = nn.Sequential(nn.Linear(2 * dim, hidden), nn.ReLU(), nn.Linear(hidden, 1, bias=False))
        self.gmf = nn.Linear(dim, 1, bias=False)

    def forward(self, user, chosen, others):
        candidates = torch.cat([chosen, others], dim=1)
        vectors, popularity = self.items(candidates)
        person = self.users(user).expand_as(vectors)
        deep = self.mlp(torch.cat([person, vectors], dim=-1))
        score = (deep + self.gmf(person * vectors)).squeeze(-1) + popularity
        difference = score[:, :1] - score[:, 1:]
        return torch.stack([difference, others.ne(0).to(difference)], dim=-1)


def bpr(outputs, strength, weight):
    difference, exists = outputs.unbind(-1)
    cost = -F.logsigmoid(difference - strength.view(-1, 1))
    cost = (cost * exists).mean(dim=1)
    return (weight * cost).sum() / weight.sum()


class SGDW(torch.optim.SGD):
    """SGD whose decay is not part of the gradient."""

    def __init__(self, params, lr, momentum, decay):
        super().__init__(params, lr=lr, momentum=momentum)
        self.decay = decay

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            if group.get("decayed", True):
                for p in group["params"]:
                    p.mul_(1 - group["lr"] * self.decay)
        return super().step(closure)


def optimizer(model):
    free = [p for name, p in model.named_parameters() if name.endswith("bias")]
    rest = [p for name, p in model.named_parameters() if not name.endswith("bias")]
    groups = [{"params": rest}, {"params": free, "decayed": False}]
    return SGDW(groups, lr=0.25, momentum=0.875, decay=1 / 64)
