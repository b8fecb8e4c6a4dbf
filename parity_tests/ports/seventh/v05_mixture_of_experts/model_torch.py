import torch
import torch.nn.functional as F
from torch import nn


class KerasBatchNorm1d(nn.Module):
    """nn.BatchNorm1d keeps the unbiased variance, Keras the biased one."""

    def __init__(self, n, eps=1e-3, momentum=0.9):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n))
        self.bias = nn.Parameter(torch.zeros(n))
        self.register_buffer("running_mean", torch.zeros(n))
        self.register_buffer("running_var", torch.ones(n))
        self.eps, self.momentum = eps, momentum

    def forward(self, x):
        if self.training:
            var, mean = torch.var_mean(x, dim=0, unbiased=False)
            with torch.no_grad():
                self.running_mean.mul_(self.momentum).add_(mean, alpha=1 - self.momentum)
                self.running_var.mul_(self.momentum).add_(var, alpha=1 - self.momentum)
        else:
            mean, var = self.running_mean, self.running_var
        return (x - mean) * torch.rsqrt(var + self.eps) * self.weight + self.bias


class SENet(nn.Module):
    def __init__(self, num_fields, reduction=2):
        super().__init__()
        hidden = max(1, num_fields // reduction)
        self.excitation = nn.Sequential(
            nn.Linear(num_fields, hidden, bias=False),
            nn.ReLU(),
            nn.Linear(hidden, num_fields, bias=False),
            nn.Sigmoid(),
        )

    def forward(self, emb):
        return emb * (self.excitation(emb.mean(-1)) * 2).unsqueeze(-1)


class Net(nn.Module):
    tasks = ("click", "watch")

    def __init__(self, field_dims=(40, 60, 24), n_context=5, embed_dim=6, n_experts=4, expert_dim=16):
        super().__init__()
        self.embeddings = nn.ModuleList(nn.Embedding(n, embed_dim) for n in field_dims)
        self.senet = SENet(len(field_dims))
        self.context_bn = KerasBatchNorm1d(n_context)
        d = len(field_dims) * embed_dim + n_context
        self.expert_weight = nn.Parameter(torch.randn(n_experts, d, expert_dim) * d**-0.5)
        self.expert_bias = nn.Parameter(torch.zeros(n_experts, 1, expert_dim))
        self.gates = nn.ModuleDict({t: nn.Linear(d, n_experts) for t in self.tasks})
        self.towers = nn.ModuleDict(
            {
                t: nn.Sequential(nn.Linear(expert_dim, 12), nn.ReLU(), nn.Dropout(0.2), nn.Linear(12, 1))
                for t in self.tasks
            }
        )

    def forward(self, user, video, hour, context):
        emb = torch.stack([e(i) for e, i in zip(self.embeddings, (user, video, hour))], dim=1)
        x = torch.cat([self.senet(emb).flatten(1), self.context_bn(context)], dim=1)
        experts = F.relu(torch.matmul(x.unsqueeze(0), self.expert_weight) + self.expert_bias)  # E, B, D
        out = {}
        for t in self.tasks:
            gate = self.gates[t](x).softmax(-1)
            mixed = (gate.t().unsqueeze(-1) * experts).sum(0)
            out[t] = self.towers[t](mixed)
        return out
