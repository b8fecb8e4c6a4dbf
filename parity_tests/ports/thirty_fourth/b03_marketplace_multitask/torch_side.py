import torch
import torch.nn.functional as F
from torch import nn


class TaskHead(nn.Module):
    def __init__(self, features, experts, units, hidden=12, dropout=0.1):
        super().__init__()
        self.gate = nn.Linear(features, experts, bias=False)
        self.net = nn.Sequential(
            nn.Linear(units, hidden), nn.ELU(), nn.Dropout(dropout), nn.Linear(hidden, 1)
        )

    def forward(self, shared, experts):
        gate = F.softmax(self.gate(shared), dim=-1)
        return self.net((gate[..., None] * experts).sum(dim=1))


class MMoE(nn.Module):
    def __init__(
        self, cardinalities=(9, 14), dims=(4, 5), numbers=6, experts=4, units=20, tasks=("click", "spend")
    ):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(n, d) for n, d in zip(cardinalities, dims))
        features = sum(dims) + numbers
        self.expert_weight = nn.Parameter(torch.empty(experts, features, units))
        self.expert_bias = nn.Parameter(torch.zeros(experts, 1, units))
        for w in self.expert_weight:
            nn.init.xavier_uniform_(w.data)
        self.heads = nn.ModuleDict({t: TaskHead(features, experts, units) for t in tasks})

    def forward(self, region, category, numbers):
        codes = [table(ids) for table, ids in zip(self.tables, (region, category))]
        shared = torch.cat([*codes, numbers], dim=-1)
        batch = shared.expand(self.expert_weight.shape[0], -1, -1)
        experts = torch.baddbmm(self.expert_bias, batch, self.expert_weight).relu().transpose(0, 1)
        return {task: head(shared, experts) for task, head in self.heads.items()}


def build():
    return MMoE()
