import torch
import torch.nn.functional as F
from torch import nn


class BatchNorm(nn.BatchNorm1d):
    """Of (n, c) or (n, c, t), with the biased variance in the running statistics."""

    def forward(self, x):
        if not self.training:
            return super().forward(x)
        axes = [axis for axis in range(x.dim()) if axis != 1]
        with torch.no_grad():
            self.running_mean.lerp_(x.mean(axes), self.momentum)
            self.running_var.lerp_(x.var(axes, unbiased=False), self.momentum)
        return F.batch_norm(x, None, None, self.weight, self.bias, True, 0.0, self.eps)


class AvgMax(nn.Module):
    def forward(self, x):
        return torch.cat([x.mean(-1), x.amax(-1)], dim=1)


class SimSiam(nn.Module):
    def __init__(self, axes=3, width=20):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv1d(axes, 12, 5, stride=2, bias=False),
            BatchNorm(12),
            nn.ReLU(),
            nn.Conv1d(12, 16, 5, stride=2, bias=False),
            BatchNorm(16),
            nn.ReLU(),
            AvgMax(),
        )
        self.projector = nn.Sequential(
            nn.Linear(32, width, bias=False),
            BatchNorm(width),
            nn.ReLU(),
            nn.Linear(width, width, bias=False),
            BatchNorm(width, affine=False),
        )
        self.predictor = nn.Sequential(
            nn.Linear(width, 8, bias=False), BatchNorm(8), nn.ReLU(), nn.Linear(8, width)
        )

    def forward(self, first, second):
        views = torch.cat([first, second]).transpose(1, 2)
        z = self.projector(self.backbone(views))
        p = self.predictor(z)
        return *p.chunk(2), *z.chunk(2)


def step(model, batch):
    p1, p2, z1, z2 = model(batch["first"], batch["second"])
    one = F.cosine_similarity(p1, z2.detach(), dim=-1).mean()
    two = F.cosine_similarity(p2.detach(), z1, dim=-1).mean()
    return -(one + two) / 2
