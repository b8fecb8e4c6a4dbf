"""Two-tower retrieval; in-batch sampled softmax corrected for item popularity."""

import torch
import torch.nn.functional as F
from torch import nn

USERS, ITEMS, DIM = 40, 30, 12
TEMPERATURE = 0.2


class Tower(nn.Module):
    """Encodes one side (user or item) as a unit vector."""

    def __init__(self, size, n_feats):
        super().__init__()
        self.table = nn.Embedding(size, DIM)
        self.hidden = nn.Linear(DIM + n_feats, 24)
        self.project = nn.Linear(24, DIM)

    def forward(self, ids, feats):
        x = torch.cat((self.table(ids), feats), dim=-1)
        x = self.project(F.relu(self.hidden(x)))
        return F.normalize(x, dim=-1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.users = Tower(USERS, 6)
        self.items = Tower(ITEMS, 5)

    def embed(self, user_id, user_feats, item_id, item_feats):
        return self.users(user_id, user_feats), self.items(item_id, item_feats)

    def forward(self, user_id, user_feats, item_id, item_feats):
        """Score of every (user, item) row, used by the ranker."""
        u, v = self.embed(user_id, user_feats, item_id, item_feats)
        return torch.linalg.vecdot(u, v).unsqueeze(-1) / TEMPERATURE


def sampled_softmax(u, v, item_id, log_q):
    """Row i: item i against the other items of the batch.

    log_q (B,) is subtracted so that popular items, which turn up as negatives
    more often, are not pushed down. Repeats of the positive are left out.
    """
    logits = u @ v.T / TEMPERATURE
    logits = logits - log_q.view(-1, 1)
    repeat = item_id.unsqueeze(1) == item_id.unsqueeze(0)
    repeat = repeat.fill_diagonal_(False)
    logits = logits.masked_fill(repeat, float("-inf"))
    labels = torch.arange(len(u), device=u.device)
    return F.cross_entropy(logits, labels)


def step(model, batch):
    """Loss of one batch of (features by name, log sampling probability)."""
    x, log_q = batch
    u, v = model.embed(x["user_id"], x["user_feats"], x["item_id"], x["item_feats"])
    return sampled_softmax(u, v, x["item_id"], log_q)
