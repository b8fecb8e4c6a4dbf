import torch
from torch import nn
from torch.nn import functional as F


class Normalise(nn.Module):
    """Batch norm over all but axis 1; what it keeps is the biased variance, in torch's sense of momentum."""

    def __init__(self, channels, momentum=0.1, eps=1e-4):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))
        self.momentum, self.eps = momentum, eps

    def forward(self, x):
        if self.training:
            var, mean = torch.var_mean(x.detach(), dim=(0, 2), correction=0)
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(var, self.momentum)
            return F.batch_norm(x, None, None, self.weight, self.bias, True, eps=self.eps)
        return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)


class PointMLP(nn.Sequential):
    def __init__(self, c_in, c_out):
        super().__init__(nn.Conv1d(c_in, c_out, 1, bias=False), Normalise(c_out), nn.ReLU())


class TNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp = PointMLP(3, 24)
        self.fc1 = nn.Linear(24, 16)
        self.fc2 = nn.Linear(16, 9)

    def forward(self, xyz):
        x = self.fc2(F.relu(self.fc1(self.mlp(xyz).amax(2)))).unflatten(1, (3, 3))
        return torch.einsum("bij,bin->bjn", x + torch.eye(3, dtype=x.dtype, device=x.device), xyz)


class PartHead(nn.Module):
    """The object's vector is projected once, instead of once for each point."""

    def __init__(self, local, whole, hidden, parts):
        super().__init__()
        self.of_point = nn.Conv1d(local, hidden, 1, bias=False)
        self.of_object = nn.Linear(whole, hidden, bias=False)
        self.norm = Normalise(hidden)
        self.out = nn.Conv1d(hidden, parts, 1)

    def forward(self, local, whole):
        x = self.of_point(local) + self.of_object(whole).unsqueeze(2)
        return self.out(self.norm(x).relu())


class Net(nn.Module):
    """Takes (batch, 3, points) and (batch, 2, points); parts are (batch, parts, points)."""

    def __init__(self):
        super().__init__()
        self.tnet = TNet()
        self.mlp1, self.mlp2 = PointMLP(6, 24), PointMLP(24, 48)
        self.classifier = nn.Sequential(nn.Linear(96, 24), nn.Tanh(), nn.Linear(24, 4))
        self.segmenter = PartHead(24, 96, 32, 3)

    def forward(self, points, colors):
        xyz = self.tnet(points - points.mean(2, keepdim=True))
        local = self.mlp1(torch.cat([xyz, colors, torch.linalg.vector_norm(xyz, dim=1, keepdim=True)], dim=1))
        wide = self.mlp2(local)
        whole = torch.cat([wide.amax(2), wide.mean(2)], dim=1)
        return {"object": self.classifier(whole), "part": self.segmenter(local, whole)}
