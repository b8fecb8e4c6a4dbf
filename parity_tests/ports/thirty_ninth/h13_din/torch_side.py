import math

import torch
import torch.nn as nn


class Dice(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.norm = nn.BatchNorm1d(n, eps=1e-4, momentum=0.1, affine=False)
        self.alpha = nn.Parameter(torch.full((n,), 0.25))

    def forward(self, x):
        p = self.norm(x.reshape(-1, x.shape[-1])).sigmoid().view_as(x)
        return x * torch.lerp(self.alpha.expand_as(x), torch.ones_like(x), p)


class LocalUnit(nn.Module):
    """Scores of the clicked items, given the candidate."""

    def __init__(self, d):
        super().__init__()
        self.a = nn.Linear(4 * d + 1, 20)
        self.act_a = Dice(20)
        self.b = nn.Linear(20, 8)
        self.act_b = nn.PReLU(8, init=0.2)
        self.out = nn.Parameter(torch.randn(8) * 0.3)

    def forward(self, cand, past, dwell):
        cand = cand.unsqueeze(1).expand_as(past)
        z = self.act_a(self.a(torch.cat((cand, past, cand - past, cand * past, dwell), dim=2)))
        z = self.act_b(self.b(z).transpose(1, 2))
        return torch.matmul(self.out, z)


class DIN(nn.Module):
    def __init__(self, n_items=61, d=10):
        super().__init__()
        self.bias_table = nn.Embedding(n_items, 1)
        self.table = nn.Embedding(n_items, d)
        self.unit = LocalUnit(d)
        self.mlp = nn.Sequential(
            nn.Linear(3 * d + 7, 32), Dice(32), nn.Linear(32, 16), nn.PReLU(16), nn.Linear(16, 1)
        )
        ang = 2 * math.pi * torch.arange(24, dtype=torch.float64) / 24
        self.register_buffer(
            "clock", torch.stack([ang.sin(), ang.cos(), (2 * ang).sin(), (2 * ang).cos()], 1).float()
        )
        self.register_buffer("u_mean", torch.tensor([35.0, 0.5, 0.5]))
        self.register_buffer("u_std", torch.tensor([10.0, 0.3, 0.5]))
        nn.init.normal_(self.table.weight, std=0.3)
        nn.init.zeros_(self.bias_table.weight)

    def forward(self, hist, dwell, item, hour, user):
        hist, item, hour = hist.long(), item.long().flatten(), hour.long().flatten()
        past, cand = self.table(hist), self.table(item)
        score = self.unit(cand, past, torch.log1p(dwell).div(4).unsqueeze(2))
        att = score.masked_fill(hist.eq(0), float("-inf")).softmax(-1)
        interest = torch.bmm(att.unsqueeze(1), past).squeeze(1)
        feats = [interest, cand, interest * cand, (user - self.u_mean) / self.u_std, self.clock[hour]]
        return self.mlp(torch.cat(feats, 1)) + self.bias_table(item)


def build():
    return DIN()
