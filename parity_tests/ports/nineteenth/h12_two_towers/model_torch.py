"""Two towers, softmax over the items of the batch, corrected by the frequency of the items."""

import torch
from torch import nn
from torch.nn import functional as F


def tower(inputs, width):
    return nn.Sequential(nn.Linear(inputs, 2 * width), nn.ReLU(inplace=True), nn.Linear(2 * width, width))


class TwoTowers(nn.Module):
    def __init__(self, users=20, items=24, categories=5, width=10):
        super().__init__()
        self.user_table = nn.Embedding(users, width)
        self.item_table = nn.EmbeddingBag(items + 1, width, mode="mean", padding_idx=0)
        self.category_table = nn.Embedding(categories, 4)
        self.towers = nn.ModuleDict({"query": tower(2 * width, width), "candidate": tower(width + 4, width)})
        self.log_scale = nn.Parameter(torch.tensor(1.5))

    def forward(self, user, history, item, category, log_q=None):
        u = torch.hstack([self.user_table(user.flatten()), self.item_table(history)])
        v = torch.hstack([self.item_table(item.view(-1, 1)), self.category_table(category.flatten())])
        return F.normalize(self.towers["query"](u)), F.normalize(self.towers["candidate"](v))


def step(model, batch):
    inputs = batch[0] if isinstance(batch, (tuple, list)) else batch
    u, v = model(**inputs)
    item = inputs["item"].flatten()
    logits = model.log_scale.exp() * u @ v.T - inputs["log_q"].flatten().to(u.dtype)
    twin = (item[:, None] == item) & ~torch.eye(len(item), dtype=torch.bool, device=item.device)
    return F.cross_entropy(logits.masked_fill(twin, -1e9), torch.arange(len(item), device=item.device))
