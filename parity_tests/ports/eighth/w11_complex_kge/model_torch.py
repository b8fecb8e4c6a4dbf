import torch
from torch import nn
from torch.nn import functional as F


class ComplexEmbedding(nn.Embedding):
    def __init__(self, n, dim):
        super().__init__(n, 2 * dim)
        nn.init.normal_(self.weight, std=0.05)

    def forward(self, index):
        return torch.view_as_complex(super().forward(index).unflatten(-1, (-1, 2)))


class Net(nn.Module):
    def __init__(self, n_entities=80, n_relations=6, dim=16):
        super().__init__()
        self.entities = ComplexEmbedding(n_entities, dim)
        self.relations = ComplexEmbedding(n_relations, dim)

    def forward(self, head, relation, tail, negatives):
        query = self.entities(head) * self.relations(relation)
        candidates = self.entities(torch.cat([tail, negatives], dim=1))
        return (query.unsqueeze(1) * candidates.conj()).sum(-1).real


def self_adversarial(scores, weights, margin=1.0, temperature=2.0):
    pos, neg = scores[:, 0], scores[:, 1:]
    with torch.no_grad():
        p = F.softmax(temperature * neg, dim=1)
    pos_loss = -F.logsigmoid(pos - margin)
    neg_loss = -(p * F.logsigmoid(-neg - margin)).sum(1)
    return (weights.view(-1) * (pos_loss + neg_loss) / 2).mean()
