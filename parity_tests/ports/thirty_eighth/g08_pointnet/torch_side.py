import torch
import torch.nn.functional as F
from torch import nn


class SharedMLP(nn.Module):
    """The same Linear for each point, all points of the batch in one long list."""

    def __init__(self, *widths):
        super().__init__()
        self.linears = nn.ModuleList(nn.Linear(a, b) for a, b in zip(widths, widths[1:]))
        self.norms = nn.ModuleList(nn.BatchNorm1d(b, eps=1e-3, momentum=0.1) for b in widths[1:])

    def forward(self, points):
        b, n, c = points.shape
        h = points.reshape(b * n, c)
        for linear, norm in zip(self.linears, self.norms):
            h = F.relu(norm(linear(h)))
        return h.view(b, n, -1)


class TNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp = SharedMLP(3, 12, 24)
        self.head = nn.Sequential(nn.Linear(24, 16), nn.ReLU(), nn.Linear(16, 9))
        nn.init.normal_(self.head[2].weight, std=0.05)
        with torch.no_grad():
            self.head[2].bias.copy_(torch.eye(3).flatten())

    def forward(self, points):
        return self.head(self.mlp(points).amax(1)).view(-1, 3, 3)


class PointNet(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.tnet = TNet()
        self.mlp = SharedMLP(3, 16, 32)
        self.head = nn.Sequential(nn.Linear(64, 20), nn.ReLU(), nn.Linear(20, classes))

    def forward(self, points, with_matrix=False):
        if points.shape[1] == 3:
            points = points.transpose(1, 2)
        matrix = self.tnet(points)
        h = self.mlp(torch.bmm(points, matrix))
        out = self.head(torch.cat([h.max(dim=1).values, h.mean(dim=1)], dim=1))
        return (out, matrix) if with_matrix else out


def training_step(model, batch):
    points, labels = batch
    out, m = model(points, with_matrix=True)
    off = m @ m.transpose(1, 2) - torch.eye(3, device=m.device).to(m.dtype)
    # Frobenius norm, squared; the trace gives the same as the sum over the entries
    ortho = torch.einsum("bij,bij->b", off, off).mean()
    return F.cross_entropy(out, labels.long().flatten()) + 0.02 * ortho


def build():
    torch.manual_seed(0)
    return PointNet()
