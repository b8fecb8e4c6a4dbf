import torch
from torch import nn


class Tower(nn.Module):
    def __init__(self, rows):
        super().__init__()
        self.embedding = nn.Embedding(rows, 16)
        self.dense1 = nn.Linear(16, 32)
        self.dense2 = nn.Linear(32, 16)

    def forward(self, ids):
        return self.dense2(torch.relu(self.dense1(self.embedding(ids))))


class TwoTower(nn.Module):
    def __init__(self, users=60, items=80):
        super().__init__()
        self.user_tower = Tower(users)
        self.item_tower = Tower(items)
        self.hidden = nn.Linear(64, 32)
        self.rating = nn.Linear(32, 1)

    def forward(self, user_id, item_id):
        user = self.user_tower(user_id)
        item = self.item_tower(item_id)
        x = torch.cat([user, item, item - user, user * item], dim=-1)
        return self.rating(torch.relu(self.hidden(x)))
