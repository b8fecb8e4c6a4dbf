import torch
import torch.nn as nn


class CrossNet(nn.Module):
    def __init__(self, width, rank, depth):
        super().__init__()
        self.down = nn.ModuleList([nn.Linear(width, rank, bias=False) for _ in range(depth)])
        self.up = nn.ModuleList([nn.Linear(rank, width) for _ in range(depth)])

    def forward(self, x0):
        x = x0
        for down, up in zip(self.down, self.up):
            x = x0 * up(down(x)) + x0
        return x


class DCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.item_table = nn.Embedding(30, 7)
        self.user_table = nn.Embedding(25, 5)
        width = 6 + 7 + 5
        self.cross = CrossNet(width, 6, 3)
        self.deep = nn.Sequential(nn.Linear(width, 24), nn.ReLU(), nn.Linear(24, 10), nn.ReLU())
        self.logit = nn.Linear(width + 10, 1)

    def forward(self, dense, item, user):
        x0 = torch.cat(
            [dense, self.item_table(item.long()).flatten(1), self.user_table(user.long()).flatten(1)], dim=1
        )
        return self.logit(torch.cat([self.cross(x0), self.deep(x0)], dim=1))


def build():
    return DCN()
