import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, units, thetas, back, ahead, bias):
        super().__init__()
        self.back = back
        self.body = nn.Sequential(
            nn.Linear(back, units),
            nn.ReLU(),
            nn.Linear(units, units),
            nn.ReLU(),
            nn.Linear(units, units),
            nn.ReLU(),
        )
        self.theta = nn.Linear(units, thetas, bias=bias)


class Trend(Block):
    def __init__(self, back, ahead, units, degree=2):
        super().__init__(units, 2 * (degree + 1), back, ahead, bias=False)
        grid = torch.arange(back + ahead, dtype=torch.float64) / (back + ahead)
        basis = torch.stack([grid**i for i in range(degree + 1)]).float()
        self.register_buffer("basis", basis, persistent=False)

    def forward(self, x):
        b, f = self.theta(self.body(x)).chunk(2, dim=1)
        return b @ self.basis[:, : self.back], f @ self.basis[:, self.back :]


class Generic(Block):
    def __init__(self, back, ahead, units):
        super().__init__(units, back + ahead, back, ahead, bias=True)

    def forward(self, x):
        theta = self.theta(self.body(x))
        return theta[:, : self.back], theta[:, self.back :]


class NBeats(nn.Module):
    def __init__(self, back=24, ahead=6, units=32):
        super().__init__()
        shared = Trend(back, ahead, units)
        self.stacks = nn.ModuleList(
            [
                nn.ModuleList([shared, shared]),
                nn.ModuleList([Generic(back, ahead, units), Generic(back, ahead, units)]),
            ]
        )

    def forward(self, x):
        forecasts = []
        for stack in self.stacks:
            for block in stack:
                backcast, forecast = block(x)
                x = x - backcast
                forecasts.append(forecast)
        return torch.stack(forecasts).sum(0)
