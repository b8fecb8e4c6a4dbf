import torch
from torch import nn


class Hedger(nn.Module):
    def __init__(self, steps=12, cost=0.002, alpha=0.8):
        super().__init__()
        self.steps, self.cost, self.alpha = steps, cost, alpha
        self.policy = nn.Sequential(
            nn.Linear(3, 24),
            nn.ELU(),
            nn.LayerNorm(24),
            nn.Linear(24, 24),
            nn.ELU(),
            nn.Linear(24, 1),
            nn.Sigmoid(),
        )
        self.threshold = nn.Parameter(torch.zeros(()))
        self.register_buffer("time_left", torch.linspace(1, 0, steps), persistent=False)

    def forward(self, paths):
        positions = [torch.zeros_like(paths[:, 0])]
        for log_spot, left in zip(paths[:, :-1].log().unbind(1), self.time_left):
            features = torch.stack([log_spot, left.expand_as(log_spot), positions[-1]], -1)
            positions.append(self.policy(features).squeeze(-1))
        positions = torch.stack(positions, 1)
        trades = positions.diff(dim=1)
        profit = (positions[:, 1:] * paths.diff(dim=1)).sum(1)
        costs = self.cost * (trades.abs() * paths[:, :-1]).sum(1)
        return profit - costs

    def training_step(self, batch):
        gains = self(batch["x"])
        shortfall = torch.relu(batch["y"].flatten() - gains - self.threshold)
        return self.threshold + shortfall.mean() / (1 - self.alpha)


def step(model, batch):
    x, y = batch
    return model.training_step({"x": x, "y": y})
