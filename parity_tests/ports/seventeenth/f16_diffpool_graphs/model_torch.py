"""DiffPool in PyTorch."""

import torch
from torch import nn
from torch.nn import functional as F


class Sage(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.neighbours = nn.Linear(inputs, outputs, bias=False)
        self.own = nn.Linear(inputs, outputs)

    def forward(self, x, adjacency):
        mean = adjacency @ x / adjacency.sum(-1, keepdim=True).clamp(min=1e-6)
        return self.own(x) + self.neighbours(mean)


class Net(nn.Module):
    def __init__(self, features=5, clusters=4, classes=3):
        super().__init__()
        self.first = Sage(features, 12)
        self.assign = Sage(12, clusters)
        self.embed = Sage(12, 16)
        self.second = Sage(16, 16)
        self.head = nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, classes))

    def penalties(self, s, adjacency, mask):
        count = mask.sum(-1)
        link = (adjacency - s @ s.mT).square().sum((1, 2)) / count**2
        entropy = -(s * (s + 1e-12).log()).sum((1, 2)) / count
        return 0.5 * link.mean() + 0.1 * entropy.mean()

    def classify(self, nodes, adjacency, mask):
        alive = mask.unsqueeze(-1)
        x = F.relu(self.first(nodes, adjacency)) * alive
        s = self.assign(x, adjacency).softmax(-1) * alive
        x = s.mT @ F.relu(self.embed(x, adjacency))
        x = F.relu(self.second(x, s.mT @ adjacency @ s))
        logits = self.head(torch.cat([x.amax(1), x.mean(1)], dim=-1))
        return logits, self.penalties(s, adjacency, mask)

    def forward(self, nodes, adjacency, mask):
        return self.classify(nodes, adjacency, mask)[0]


def step(model, batch):
    inputs, y = batch
    logits, penalty = model.classify(inputs["nodes"], inputs["adjacency"], inputs["mask"])
    return F.cross_entropy(logits, y.flatten().long()) + penalty
