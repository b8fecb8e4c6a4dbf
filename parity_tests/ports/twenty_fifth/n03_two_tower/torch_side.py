import torch
import torch.nn.functional as F
from torch import nn


def mlp(n_in, activation, n_out):
    return nn.Sequential(nn.Linear(n_in, 16), activation, nn.Linear(16, n_out))


class Retrieval(nn.Module):
    def __init__(self, n_users=40, n_items=30, dim=8):
        super().__init__()
        self.tables = nn.ModuleDict({"user": nn.Embedding(n_users, dim), "item": nn.Embedding(n_items, dim)})
        self.context = nn.Linear(4, 6)
        self.genre_vectors = nn.Parameter(torch.randn(5, dim) * 0.3)
        self.towers = nn.ModuleDict({"query": mlp(dim + 6, nn.Tanh(), dim), "item": mlp(dim, nn.SELU(), dim)})
        self.log_scale = nn.Parameter(torch.tensor(1.5))

    def forward(self, user, context, item, genre_flags):
        u = self.tables["user"](user)
        q = self.towers["query"](torch.hstack((u, F.elu(self.context(context))))) + u
        v = self.tables["item"](item) + genre_flags.to(u.dtype) @ self.genre_vectors
        v = self.towers["item"](v)
        q, v = (z / z.norm(dim=1, keepdim=True) for z in (q, v))
        return torch.hstack((self.log_scale.exp() * q, v))


def retrieval_loss(outputs, targets):
    q, v = outputs.chunk(2, dim=1)
    log_share, ids = targets.unbind(dim=1)
    ids = ids.long()
    scores = torch.einsum("id,jd->ij", q, v) - log_share.to(q.dtype)
    hit = ids.unsqueeze(0).eq(ids.unsqueeze(1)).fill_diagonal_(False)
    scores = scores.masked_fill(hit, -1e9)
    return (scores.logsumexp(dim=1) - scores.diagonal()).mean()


def build():
    return Retrieval()
