import torch
from torch import nn


class Norm(nn.Module):
    """Batch norm of (N, C, P) with Keras's moving statistics."""

    def __init__(self, channels, eps=1e-4, keep=0.95):
        super().__init__()
        self.eps, self.keep = eps, keep
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))

    def forward(self, x):
        if not self.training:
            return nn.functional.batch_norm(
                x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps
            )
        with torch.no_grad():
            for kept, new in (
                (self.running_mean, x.mean((0, 2))),
                (self.running_var, x.var((0, 2), unbiased=False)),
            ):
                kept.mul_(self.keep).add_(new, alpha=1 - self.keep)
        return nn.functional.batch_norm(x, None, None, self.weight, self.bias, training=True, eps=self.eps)


def shared(inputs, outputs, activation=nn.ReLU):
    return nn.Sequential(nn.Conv1d(inputs, outputs, 1, bias=False), Norm(outputs), activation())


class PointNet(nn.Module):
    def __init__(self, classes=5, parts=3):
        super().__init__()
        self.transform = nn.Sequential(shared(3, 16), shared(16, 32))
        self.turn = nn.Linear(32, 9, bias=False)
        self.local = shared(3, 24)
        self.wide = nn.Sequential(shared(24, 32), shared(32, 64, nn.Tanh))
        self.label = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, classes))
        self.part = nn.Sequential(shared(24 + 64, 32), nn.Conv1d(32, parts, 1))

    def forward(self, points):
        turn = self.turn(self.transform(points).amax(-1)).view(-1, 3, 3)
        turn = turn + torch.eye(3, dtype=points.dtype, device=points.device)
        x = turn.transpose(1, 2) @ points
        local = self.local(x)
        whole = self.wide(local).amax(-1)
        everywhere = whole.unsqueeze(-1).expand(-1, -1, points.shape[-1])
        return {"label": self.label(whole), "part": self.part(torch.cat([local, everywhere], 1))}
