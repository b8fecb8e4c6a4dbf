import torch
from torch import nn


class Channels(nn.Module):
    """(batch, time, channel) to (batch, channel, time)"""

    def forward(self, x):
        return x.permute(0, 2, 1)


class SimSiam(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            Channels(),
            nn.Conv1d(4, 12, 3, padding="same"),
            nn.Tanh(),
            nn.Conv1d(12, 16, 3, stride=2, padding=1),
            nn.Tanh(),
            nn.Conv1d(16, 16, 3, padding="same"),
            nn.ReLU(),
            nn.AdaptiveAvgPool1d(1),
            nn.Flatten(),
            nn.Linear(16, 10),
        )
        self.predictor = nn.Sequential(nn.Linear(10, 6), nn.SiLU(), nn.Linear(6, 10))

    def forward(self, view_a, view_b):
        pairs = []
        for view in (view_a, view_b):
            z = self.encoder(view)
            pairs += [self.predictor(z), z]
        return torch.stack(pairs, dim=1)


def unit(v):
    return v * (v.square().sum(-1, keepdim=True) + 1e-12).rsqrt()


def simsiam(outputs, targets):
    p_a, z_a, p_b, z_b = map(unit, outputs.unbind(1))
    alike = (p_a * z_b).sum(-1) + (p_b * z_a).sum(-1)
    return (targets.reshape(-1).to(outputs.dtype) * (1 - 0.5 * alike)).mean()


def build():
    return SimSiam()
