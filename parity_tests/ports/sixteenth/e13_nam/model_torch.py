import math

import torch
import torch.nn.functional as F
from torch import nn


class FeatureLinear(nn.Module):
    def __init__(self, features, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features, outputs, inputs) * (2 / inputs) ** 0.5)
        self.bias = nn.Parameter(torch.zeros(features, outputs))

    def forward(self, x):
        return torch.einsum("bfi,foi->bfo", x, self.weight) + self.bias


class ExpUnits(nn.Module):
    def __init__(self, features, units):
        super().__init__()
        self.log_slope = nn.Parameter(0.5 + 0.3 * torch.randn(features, units))
        self.threshold = nn.Parameter(2 * torch.rand(features, units) - 1)

    def forward(self, x):
        return ((x.unsqueeze(-1) - self.threshold) * self.log_slope.exp()).clamp(0, 1)


class NAM(nn.Module):
    def __init__(self, features=7):
        super().__init__()
        self.shapes = nn.Sequential(
            ExpUnits(features, 16),
            nn.Dropout(0.1),
            FeatureLinear(features, 16, 8),
            nn.ReLU(),
            FeatureLinear(features, 8, 1),
        )
        self.drop_feature = nn.Dropout(0.05)
        self.intercept = nn.Parameter(torch.zeros(1))

    def contributions(self, x):
        return self.shapes(x).squeeze(-1)

    def logit(self, contributions):
        return self.drop_feature(contributions).sum(1, keepdim=True) + self.intercept

    def forward(self, x):
        return self.logit(self.contributions(x))


def step(model, batch):
    x, y = batch
    parts = model.contributions(x)
    loss = F.binary_cross_entropy_with_logits(model.logit(parts), y.to(parts.dtype).view(-1, 1))
    return loss + 0.05 * parts.square().sum(1).mean()


class ClippedSGD(torch.optim.SGD):
    def __init__(self, params, lr, max_norm):
        super().__init__(params, lr)
        self.max_norm = max_norm

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                p.grad.mul_(self.max_norm / p.grad.norm().clamp(min=self.max_norm))
        return super().step(closure)


def optimizer(model, warmup=5, steps=40):
    optimizer = ClippedSGD(model.parameters(), lr=0.1, max_norm=0.2)

    def rate(step):
        if step < warmup:
            return (step + 1) / warmup
        return 0.5 * (1 + math.cos(math.pi * (step - warmup) / steps))

    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
