import torch
import torch.nn as nn
import torch.nn.functional as F

USERS, ITEMS, DIM = 120, 200, 24


def tower(inputs):
    return nn.Sequential(nn.Linear(inputs, 48), nn.ReLU(), nn.Linear(48, DIM))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.user_embedding = nn.Embedding(USERS, DIM)
        self.item_embedding = nn.Embedding(ITEMS, DIM)
        self.user_mlp = tower(2 * DIM)
        self.item_mlp = tower(DIM + 1)

    def pooled(self, history):
        valid = (history > 0).unsqueeze(-1)
        clicks = self.item_embedding(history).masked_fill(~valid, 0.0)
        return clicks.mean(dim=1)

    def forward(self, user, history, item, price):
        u = self.user_mlp(torch.cat((self.user_embedding(user), self.pooled(history)), dim=-1))
        i = self.item_mlp(torch.cat((self.item_embedding(item), price), dim=-1))
        return torch.stack((F.normalize(u, dim=-1), F.normalize(i, dim=-1)), dim=1)


def loss(output, target, temperature=0.1):
    item = target.reshape(-1)
    scores = output[:, 0] @ output[:, 1].T / temperature
    eye = torch.eye(len(item), dtype=torch.bool, device=item.device)
    accidental = (item[:, None] == item[None, :]) & ~eye
    scores = scores.masked_fill(accidental, -1e9)
    labels = torch.arange(len(item), device=item.device)
    return F.cross_entropy(scores, labels)
