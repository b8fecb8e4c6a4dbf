import torch
from torch import nn
from torch.nn import functional as F


class SimSiam(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.LayerNorm(32), nn.Linear(32, 16))
        self.predictor = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 16))

    def forward(self, left, right):
        z_left, z_right = self.encoder(left), self.encoder(right)
        predictions = torch.stack(
            [self.predictor(z_left), self.predictor(z_right)], 1
        )  # batch, view, feature
        fixed = torch.stack([z_right.detach(), z_left], 1)
        predictions = F.normalize(predictions, dim=-1)
        fixed = F.normalize(fixed)
        return (predictions * fixed).sum(-1)


def loss(output, target):
    return -output.mean()
