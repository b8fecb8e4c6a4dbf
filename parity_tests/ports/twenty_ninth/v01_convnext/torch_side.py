import torch
import torch.nn as nn
import torch.nn.functional as F


class ChannelNorm(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(c))
        self.bias = nn.Parameter(torch.zeros(c))

    def forward(self, x):  # N C H W
        mu = x.mean(1, keepdim=True)
        var = (x - mu).pow(2).mean(1, keepdim=True)
        x = (x - mu) * torch.rsqrt(var + 1e-6)
        return x * self.weight[:, None, None] + self.bias[:, None, None]


class ResponseNorm(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gamma = nn.Parameter(torch.zeros(1, c, 1, 1))
        self.beta = nn.Parameter(torch.zeros(1, c, 1, 1))

    def forward(self, x):
        g = torch.linalg.vector_norm(x, dim=(2, 3), keepdim=True)
        n = g / (g.mean(dim=1, keepdim=True) + 1e-6)
        return x + self.gamma * x * n + self.beta


class Residual(nn.Sequential):
    def forward(self, x):
        return x + super().forward(x)


def cnx(c):
    return Residual(
        nn.Conv2d(c, c, 5, padding=2, groups=c),
        ChannelNorm(c),
        nn.Conv2d(c, 3 * c, 1),
        nn.GELU(),
        ResponseNorm(3 * c),
        nn.Conv2d(3 * c, c, 1),
    )


class Blur(nn.Module):
    def forward(self, x):
        x = F.pad(x, (1, 1, 1, 1), mode="reflect")
        rows = 0.25 * x[:, :, 0:-2:2] + 0.5 * x[:, :, 1:-1:2] + 0.25 * x[:, :, 2::2]
        return 0.25 * rows[..., 0:-2:2] + 0.5 * rows[..., 1:-1:2] + 0.25 * rows[..., 2::2]


class LeafNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv2d(3, 10, 2, 2), cnx(10), Blur(), nn.Conv2d(10, 12, 1, bias=False), cnx(12)
        )
        self.norm = nn.LayerNorm(12, eps=1e-6)
        self.fc = nn.Linear(12, 4)

    def forward(self, x):
        x = self.trunk(x.permute(0, 3, 1, 2))
        return self.fc(self.norm(x.flatten(2).mean(-1)))


def build():
    return LeafNet()
