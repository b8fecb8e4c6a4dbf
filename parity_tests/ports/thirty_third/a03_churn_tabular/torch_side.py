import torch
from torch import nn

L2 = 5e-3


class Residual(nn.Module):
    def __init__(self, dim, p=0.1):
        super().__init__()
        self.block = nn.Sequential(
            nn.LayerNorm(dim),
            nn.Linear(dim, dim),
            nn.SiLU(),
            nn.Dropout(p),
            nn.Linear(dim, dim),
        )

    def forward(self, x):
        return x + self.block(x)


class ChurnNet(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.register_buffer("mean", 3.5 * torch.arange(10) - 2)
        self.register_buffer("std", 0.5 + 0.75 * torch.arange(10))
        self.plan = nn.Embedding(5, 3)
        self.region = nn.Embedding(9, 4)
        self.project = nn.Linear(17, dim)
        self.trunk = nn.Sequential(Residual(dim), Residual(dim))
        self.churn = nn.Linear(dim, 1)

    def forward(self, numeric, plan, region):
        x = (numeric - self.mean) / self.std
        x = torch.cat([x, self.plan(plan.long()), self.region(region.long())], dim=1)
        return self.churn(self.trunk(self.project(x)))


def build():
    return ChurnNet()


def optimizer(params):
    return torch.optim.SGD(params, lr=0.03, momentum=0.9, nesterov=True, weight_decay=L2)
