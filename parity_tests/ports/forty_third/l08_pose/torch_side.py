from collections import OrderedDict

import torch
from torch import Tensor, nn

LINKS = ((0, 1), (1, 2), (2, 3), (0, 4), (4, 5), (5, 6), (0, 7), (7, 8), (8, 9), (7, 10), (10, 11), (7, 12))


def skeleton(v: int = 13) -> Tensor:
    depth = torch.zeros(v, dtype=torch.long)
    adj = torch.eye(v)
    for parent, child in LINKS:
        depth[child] = depth[parent] + 1
        adj[parent, child] = adj[child, parent] = 1.0
    adj /= adj.sum(dim=0)
    sign = torch.sign(depth.unsqueeze(1) - depth.unsqueeze(0))
    return torch.stack([adj * (sign == s) for s in (0, -1, 1)])


def bn2d(c):
    return nn.BatchNorm2d(c, eps=1e-3, momentum=0.01)


class STBlock(nn.Module):
    """(N, C, T, V) -> (N, C', T - 2 * dilation, V)"""

    def __init__(self, cin: int, cout: int, dilation: int):
        super().__init__()
        self.d = dilation
        self.shortcut = (
            nn.Identity() if cin == cout else nn.Sequential(nn.Conv2d(cin, cout, 1, bias=False), bn2d(cout))
        )
        self.edge = nn.Parameter(torch.empty(3, 13, 13).uniform_(0.8, 1.2))
        self.spatial = nn.Conv2d(cin, 3 * cout, 1)
        self.temporal = nn.Sequential(
            bn2d(cout), nn.ReLU(), nn.Conv2d(cout, cout, (3, 1), dilation=(dilation, 1)), bn2d(cout)
        )

    def forward(self, x: Tensor, adj: Tensor) -> Tensor:
        n, _, t, v = x.shape
        parts = self.spatial(x).chunk(3, dim=1)
        mixed = sum(p.matmul(g) for p, g in zip(parts, adj * self.edge))
        skip = self.shortcut(x.narrow(2, self.d, t - 2 * self.d))
        return torch.relu(self.temporal(mixed) + skip)


class PoseLifter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("adj", skeleton(), persistent=False)
        self.register_buffer("feet", torch.tensor([3, 6]), persistent=False)
        self.heads = nn.ModuleDict({"contact": nn.Linear(24, 1), "pose": nn.Linear(24, 3)})
        self.norm_in = nn.BatchNorm1d(39, eps=1e-3, momentum=0.05)
        self.blocks = nn.ModuleList([STBlock(3, 16, 1), STBlock(16, 24, 3), STBlock(24, 24, 3)])

    def forward(self, keypoints: Tensor):
        xy, conf = keypoints.split([2, 1], dim=-1)
        xy = (xy - xy[:, :, 0].unsqueeze(2)).mul(conf.sqrt())
        x = torch.cat([xy, (conf - 0.85) / 0.15], dim=-1)
        n, t, v, c = x.shape
        x = self.norm_in(x.reshape(n * t, v * c)).view(n, t, v, c).permute(0, 3, 1, 2)
        for b in self.blocks:
            x = b(x, self.adj)
        x = x.squeeze(2).transpose(1, 2)
        pose = self.heads["pose"](x)
        root, _ = pose.split([1, v - 1], dim=1)
        contact = self.heads["contact"](x.index_select(1, self.feet)).squeeze(-1)
        return OrderedDict(pose=pose - root, contact=contact)


def mpjpe(pred: Tensor, target: Tensor) -> Tensor:
    return (pred - target).pow(2).sum(-1).add(1e-6).sqrt().mean()


def build():
    return PoseLifter()
