import torch
import torch.nn.functional as F
from torch import nn

USERS, ITEMS, HIST, DIM = 60, 90, 10, 16
TEMPERATURE = 0.2


def tower(n_in):
    return nn.Sequential(nn.Linear(n_in, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, DIM))


class TwoTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.users = nn.Embedding(USERS, DIM)
        self.items = nn.Embedding(ITEMS + 1, DIM)
        nn.init.normal_(self.users.weight, std=0.05)
        nn.init.normal_(self.items.weight, std=0.05)
        self.query = tower(2 * DIM)
        self.candidate = tower(DIM)

    def forward(self, user, hist, item):
        known = hist > 0
        weights = known / known.sum(1, keepdim=True).clamp(min=1).to(self.items.weight.dtype)
        history = torch.einsum("bl,bld->bd", weights, self.items(hist))
        u = self.query(torch.cat([self.users(user), history], dim=1))
        v = self.candidate(self.items(item))
        return torch.cat([F.normalize(u, dim=1), F.normalize(v, dim=1)], dim=1)


def in_batch_softmax(output, target):
    u, v = output.chunk(2, dim=1)
    scores = (u / TEMPERATURE) @ v.T - target.view(1, -1)
    labels = torch.arange(len(scores))
    return F.cross_entropy(scores, labels)


def build():
    return TwoTower()
