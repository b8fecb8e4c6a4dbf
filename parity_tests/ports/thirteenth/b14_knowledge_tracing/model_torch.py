"""DKVMN in PyTorch."""

import torch
from torch import nn
from torch.nn import functional as F


class Tracer(nn.Module):
    def __init__(self, skills=9, slots=5, keys=6, values=8, hidden=10):
        super().__init__()
        self.skills = skills
        self.skill = nn.Embedding(skills + 1, keys)
        self.interaction = nn.Embedding(2 * skills + 1, values)
        self.write = nn.Linear(values, 2 * values)
        self.key = nn.Linear(keys, slots, bias=False)
        self.start = nn.Parameter(0.05 * torch.randn(slots, values))
        self.summary = nn.Sequential(nn.Linear(values + keys, hidden), nn.Tanh(), nn.Linear(hidden, 1))

    def events(self, skills, answers):
        """Row 0 is padding, then wrong and right answers to each skill."""
        row = 2 * skills - 1 + answers
        return self.interaction(row.where(skills > 0, torch.zeros_like(row)))

    def forward(self, skills, answers):
        skills, answers = skills.long(), answers.long()
        query = self.skill(skills)
        attention = self.key(query).softmax(dim=2)
        erase, add = self.write(self.events(skills, answers)).chunk(2, dim=2)
        erase, add = erase.sigmoid(), add.tanh()
        memory = self.start.expand(len(skills), -1, -1)
        reads = []
        for w, e, a in zip(attention.unbind(1), erase.unbind(1), add.unbind(1)):
            reads.append(torch.einsum("bs,bsv->bv", w, memory))
            memory = memory - memory * torch.einsum("bs,bv->bsv", w, e) + torch.einsum("bs,bv->bsv", w, a)
        return self.summary(torch.cat([torch.stack(reads, dim=1), query], dim=2)).squeeze(2)


def loss(logits, target):
    known = (target >= 0).to(logits.dtype)
    value = F.binary_cross_entropy_with_logits(logits, target.clamp(min=0), reduction="none") * known
    return value.sum() / known.sum()
