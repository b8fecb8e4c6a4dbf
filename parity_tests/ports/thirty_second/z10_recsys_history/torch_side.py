import torch
import torch.nn.functional as F
from torch import nn


class Ranker(nn.Module):
    def __init__(self, n_users=30, n_items=41, k=8):
        super().__init__()
        self.users = nn.Embedding(n_users, k)
        self.items = nn.Embedding(n_items, k)
        self.item_bias = nn.Embedding(n_items, 1)
        self.mlp = nn.Sequential(
            nn.Linear(4 * k, 24), nn.ReLU(), nn.Linear(24, 12), nn.ReLU(), nn.Linear(12, 1)
        )
        self.k = k

    def attend(self, i, hist):
        e = self.items(hist)
        scores = (e @ i.unsqueeze(-1)).squeeze(-1) * self.k**-0.5
        empty = (hist == 0).all(1, keepdim=True)
        scores = scores.masked_fill((hist == 0) & ~empty, float("-inf"))
        w = scores.softmax(1) * (~empty)
        return (w.unsqueeze(-1) * e).sum(1)

    def penalty(self):
        emb = self.users.weight.pow(2).sum() + self.items.weight.pow(2).sum()
        dense = self.mlp[0].weight.pow(2).sum() + self.mlp[2].weight.pow(2).sum()
        return 1e-3 * emb + 1e-4 * dense

    def forward(self, user_id, item_id=None, history=None):
        if isinstance(user_id, dict):
            user_id, item_id, history = (user_id[n] for n in ("user_id", "item_id", "history"))
        uid, iid = user_id.long().reshape(-1), item_id.long().reshape(-1)
        u, i = self.users(uid), self.items(iid)
        h = self.attend(i, history.long())
        prod = u * i
        logit = self.mlp(torch.cat([u, i, h, prod], -1)) + self.item_bias(iid) + prod.sum(-1, keepdim=True)
        return logit, self.penalty()


def build():
    return Ranker()


def loss(outputs, targets):
    logit, reg = outputs
    return F.binary_cross_entropy_with_logits(logit, targets.to(logit.dtype).reshape(logit.shape)) + reg
