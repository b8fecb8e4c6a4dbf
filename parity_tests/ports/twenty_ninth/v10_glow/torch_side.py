import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class FlowStep(nn.Module):
    """actnorm -> 1x1 -> affine coupling, channels first"""

    def __init__(self, c, hidden):
        super().__init__()
        self.b = nn.Parameter(torch.zeros(c, 1))
        self.logs = nn.Parameter(torch.zeros(c, 1))
        self.W = nn.Parameter(torch.linalg.qr(torch.randn(c, c))[0])
        self.net = nn.Sequential(
            nn.Conv1d(c // 2, hidden, 3, padding=1), nn.ReLU(), nn.Conv1d(hidden, c, 3, padding=1)
        )

    def forward(self, x, logdet):
        length = x.shape[-1]
        x = (x + self.b) * self.logs.exp()
        logdet = logdet + length * self.logs.sum()

        x = F.conv1d(x, self.W[:, :, None])
        logdet = logdet + length * torch.linalg.slogdet(self.W)[1]

        xa, xb = x.chunk(2, dim=1)
        shift, raw = self.net(xa).chunk(2, dim=1)
        xb = (xb + shift) * torch.sigmoid(raw + 2)
        logdet = logdet + F.logsigmoid(raw + 2).sum(dim=(1, 2))
        return torch.cat([xa, xb], dim=1), logdet


class Flow(nn.Module):
    def __init__(self, c=4, hidden=12, steps=2):
        super().__init__()
        self.steps = nn.ModuleList(FlowStep(c, hidden) for _ in range(steps))

    def forward(self, x):
        z, logdet = x.mT, x.new_zeros(len(x))
        for s in self.steps:
            z, logdet = s(z, logdet)
        return torch.cat([z.mT.flatten(1), logdet.unsqueeze(1)], dim=1)


def weighted_nll(output, target):
    z, logdet = output[:, :-1], output[:, -1]
    n = z.shape[1]
    nll = 0.5 * z.square().sum(1) + 0.5 * n * math.log(2 * math.pi) - logdet
    return torch.mean(target.reshape(-1).to(nll) * nll / n)


def build():
    return Flow()
