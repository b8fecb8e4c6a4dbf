import math

import torch
import torch.nn.functional as F
from torch import nn


class RotatE(nn.Module):
    def __init__(self, entities=40, relations=6, dim=8, gamma=4.0):
        super().__init__()
        self.gamma = gamma
        self.embedding_range = (gamma + 2.0) / dim
        self.entity = nn.Embedding(entities, 2 * dim)
        self.relation = nn.Embedding(relations, dim)
        for table in (self.entity, self.relation):
            nn.init.uniform_(table.weight, -self.embedding_range, self.embedding_range)

    def complex_entity(self, index):
        return torch.complex(*self.entity(index).chunk(2, dim=-1))

    def forward(self, head, relation, tail, corrupt):
        phase = self.relation(relation) / (self.embedding_range / math.pi)
        query = self.complex_entity(head) * torch.polar(torch.ones_like(phase), phase)

        def score(candidate):
            return self.gamma - (query.unsqueeze(1) - candidate).abs().sum(-1)

        return torch.cat(
            [score(self.complex_entity(tail.unsqueeze(1))), score(self.complex_entity(corrupt))], dim=1
        )


def loss(outputs, targets, alpha=0.7):
    positive, negative = outputs.split([1, outputs.shape[1] - 1], dim=1)
    with torch.no_grad():
        weight = (alpha * negative).softmax(1)
    positive_loss = -F.logsigmoid(positive).squeeze(1)
    negative_loss = -(weight * F.logsigmoid(-negative)).sum(1)
    return (targets.squeeze(1) * torch.stack([positive_loss, negative_loss]).mean(0)).mean()
