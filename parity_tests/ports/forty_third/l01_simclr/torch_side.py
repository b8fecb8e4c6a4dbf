import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class ConvBnAct(nn.Module):
    def __init__(self, cin, cout, stride=1, act=True):
        super().__init__()
        self.stride = stride
        self.conv = nn.Conv2d(cin, cout, 3, stride=stride, padding=1 if stride == 1 else 0, bias=False)
        self.bn = nn.BatchNorm2d(cout, eps=1e-3, momentum=0.1)
        self.act = act

    def forward(self, x):
        if self.stride == 2:
            x = F.pad(x, (0, 1, 0, 1))
        x = self.bn(self.conv(x))
        return F.silu(x) if self.act else x


class ContrastiveNet(nn.Module):
    def __init__(self, n_classes=4):
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.48, 0.45, 0.41]).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor([0.25, 0.24, 0.26]).view(1, 3, 1, 1))
        self.log_tau = nn.Parameter(torch.tensor(math.log(0.2)))
        self.c1 = ConvBnAct(3, 12)
        self.c2 = ConvBnAct(12, 16, 2)
        self.c3 = ConvBnAct(16, 16, act=False)
        self.c4 = ConvBnAct(16, 24, 2)
        self.head = nn.Sequential(
            nn.Linear(24, 32, bias=False),
            nn.BatchNorm1d(32, eps=1e-3, momentum=0.1),
            nn.SiLU(),
            nn.Linear(32, 20),
        )
        self.linear_eval = nn.Linear(24, n_classes)

    def features(self, img):
        x = (img.permute(0, 3, 1, 2) - self.mean) / self.std
        x = self.c2(self.c1(x))
        x = F.silu(x + self.c3(x))
        return self.c4(x).mean((2, 3))

    def embed(self, img):
        h = self.features(img)
        return F.normalize(self.head(h), dim=-1), self.linear_eval(h.detach())

    def forward(self, pair):
        first, second = pair.unbind(1)
        (za, la), (zb, lb) = self.embed(first), self.embed(second)
        return torch.stack([za, zb], 1), torch.stack([la, lb], 1)


def info_nce(z, log_tau):
    n = z.shape[0]
    z = z.transpose(0, 1).reshape(2 * n, -1)
    sim = (z @ z.T) / log_tau.exp()
    sim = sim.masked_fill(torch.eye(2 * n, dtype=torch.bool, device=z.device), float("-inf"))
    target = torch.arange(2 * n, device=z.device).roll(n)
    return F.cross_entropy(sim, target)


def step(model, batch):
    if isinstance(batch, dict):
        pair, label = batch["crops"], batch["label"]
    else:
        pair, label = batch[0], batch[1]
    z, logits = model(pair)
    logits = torch.cat(logits.unbind(1))
    probe = F.cross_entropy(logits, label.long().repeat_interleave(2))
    return info_nce(z, model.log_tau) + 0.5 * probe


def build():
    return ContrastiveNet()
