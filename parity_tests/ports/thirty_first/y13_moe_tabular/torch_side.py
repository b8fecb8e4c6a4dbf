import torch
import torch.nn.functional as F
from torch import nn


class SparseMoE(nn.Module):
    def __init__(self, dim, hidden, num_experts=4, top_k=2, aux_weight=0.1):
        super().__init__()
        self.num_experts, self.top_k, self.aux_weight = num_experts, top_k, aux_weight
        self.gate = nn.Linear(dim, num_experts, bias=False)
        self.experts = nn.ModuleList(
            [
                nn.Sequential(nn.Linear(dim, hidden), nn.SiLU(), nn.Linear(hidden, dim))
                for _ in range(num_experts)
            ]
        )

    def forward(self, x):
        scores = F.softmax(self.gate(x), dim=-1)
        weights, idx = scores.topk(self.top_k, dim=-1)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        scores = torch.zeros_like(scores).scatter(1, idx, weights)

        out = torch.zeros_like(x)
        for e, expert in enumerate(self.experts):
            out = out + scores[:, e : e + 1] * expert(x)

        f = F.one_hot(idx, self.num_experts).sum(1).to(x.dtype).mean(0) / self.top_k
        p = scores.mean(0)
        aux = self.aux_weight * self.num_experts * torch.dot(f, p)
        return out, aux


class TabularMoE(nn.Module):
    def __init__(self, n_features=9, dim=16):
        super().__init__()
        self.embed = nn.Linear(n_features, dim)
        self.norm1 = nn.LayerNorm(dim, eps=1e-3)
        self.moe = SparseMoE(dim, 24)
        self.norm2 = nn.LayerNorm(dim, eps=1e-3)
        self.out = nn.Linear(dim, 1)

    def forward(self, x):
        x = self.embed(x)
        y, aux = self.moe(self.norm1(x))
        return self.out(self.norm2(x + y)), aux


def build():
    return TabularMoE()


def loss(outputs, targets):
    pred, aux = outputs
    return F.huber_loss(pred.view(-1), targets.view(-1).to(pred.dtype)) + aux
