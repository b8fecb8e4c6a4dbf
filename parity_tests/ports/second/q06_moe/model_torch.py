import torch
from torch import nn


class Expert(nn.Sequential):
    def __init__(self, features, width):
        super().__init__(nn.Linear(features, width), nn.ReLU(), nn.Linear(width, width // 2), nn.ReLU())


class MixtureOfExperts(nn.Module):
    def __init__(self, features=16, experts=4, width=32, classes=5):
        super().__init__()
        self.experts = nn.ModuleList([Expert(features, width) for _ in range(experts)])
        self.gate = nn.Linear(features, experts)
        self.tower = nn.Linear(width // 2, 24)
        self.classifier = nn.Linear(24, classes)

    def forward(self, x):
        outputs = torch.stack([expert(x) for expert in self.experts])  # experts, batch, features
        weights = torch.softmax(self.gate(x), dim=0)
        mixed = (outputs * weights.t().unsqueeze(-1)).sum(0)
        return self.classifier(torch.relu(self.tower(mixed)))
