import torch
from torch import nn


class Transform(nn.Module):
    def __init__(self):
        super().__init__()
        self.each = nn.Linear(3, 16)
        self.matrix = nn.Linear(16, 9)

    def forward(self, points):
        pooled = self.each(points).relu().amax(1)
        return points @ (self.matrix(pooled).view(-1, 3, 3) + torch.eye(3, device=points.device))


class PointNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.transform = Transform()
        self.local = nn.Linear(3, 16)
        self.whole = nn.Linear(16, 24)
        self.mix = nn.Linear(43, 16)
        self.parts = nn.Linear(16, 4)

    def forward(self, points):
        n, p, _ = points.shape
        moved = self.transform(points)
        local = self.local(moved).relu()
        whole = self.whole(local).relu().amax(1)
        whole = whole.repeat(p, 1).view(n, p, -1)
        x = torch.cat([points, local, whole], -1)
        return self.parts(self.mix(x).relu())
