import torch
import torch.nn as nn
import torch.nn.functional as F

TAU = 0.2


def unit(v):
    return v * torch.rsqrt(v.square().sum(-1, keepdim=True) + 1e-8)


class Towers(nn.Module):
    def __init__(self, users=20, items=30, d=8):
        super().__init__()
        self.items = nn.Embedding(items, d, padding_idx=0)
        self.users = nn.Embedding(users, d)
        self.query = nn.Sequential(nn.Linear(2 * d, 16), nn.SiLU(), nn.Linear(16, d))
        self.candidate = nn.Sequential(nn.Linear(d, 16), nn.SiLU(), nn.Linear(16, d))

    def summarise(self, history):
        real = history.ne(0)
        total = self.items(history).masked_fill(~real.unsqueeze(-1), 0.0).sum(1)
        return total / history.shape[1]

    def forward(self, user, history, item):
        q = self.query(torch.cat([self.users(user), self.summarise(history)], dim=-1))
        c = self.candidate(self.items(item))
        return torch.cat([unit(q), unit(c)], dim=-1)


def retrieval_loss(output, target):
    q, c = output.chunk(2, dim=-1)
    ids = target[:, 0]
    log_q = target[:, 1].to(output.dtype)
    logits = q @ c.T / TAU
    logits = logits - log_q.unsqueeze(1)
    clash = ids.unsqueeze(0).eq(ids.unsqueeze(1))
    clash.fill_diagonal_(False)
    logits = logits.masked_fill(clash, -1e9)
    labels = torch.arange(len(ids), device=output.device)
    return F.cross_entropy(logits, labels)


def build():
    return Towers()
