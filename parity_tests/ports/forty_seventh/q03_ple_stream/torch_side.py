"""PLE (Tang et al. 2020) on the feed's logs: three tasks, two extraction levels."""

import math

import torch
import torch.nn.functional as F
from torch import nn

MEANS = (3.2, 0.45, 12.0, 40.0, 0.1, 1.7)
STDS = (1.1, 0.25, 5.0, 22.0, 0.3, 0.9)


class Experts(nn.Module):
    def __init__(self, n, dim, hidden):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n, dim, hidden) * math.sqrt(2 / dim))
        self.bias = nn.Parameter(torch.zeros(n, hidden))

    def forward(self, x):
        y = torch.baddbmm(self.bias.unsqueeze(1), x.expand(len(self.weight), -1, -1), self.weight)
        return F.silu(y).transpose(0, 1)


class Gate(nn.Linear):
    def __init__(self, dim, n):
        super().__init__(dim, n, bias=False)

    def forward(self, x, experts):
        return torch.bmm(super().forward(x).softmax(-1).unsqueeze(1), experts).squeeze(1)


class CGC(nn.Module):
    """Customised gate control; with `final` there is no gate for the shared stream."""

    def __init__(self, dim, hidden=20, tasks=3, specific=2, shared=3, final=False):
        super().__init__()
        self.shared = Experts(shared, dim, hidden)
        self.specific = nn.ModuleList(Experts(specific, dim, hidden) for _ in range(tasks))
        self.gates = nn.ModuleList(Gate(dim, specific + shared) for _ in range(tasks))
        self.shared_gate = None if final else Gate(dim, specific * tasks + shared)

    def forward(self, streams):
        *own, common = streams
        pool = self.shared(common)
        banks = [bank(s) for bank, s in zip(self.specific, own)]
        out = [gate(s, torch.cat([b, pool], 1)) for gate, s, b in zip(self.gates, own, banks)]
        if self.shared_gate is not None:
            out.append(self.shared_gate(common, torch.cat([*banks, pool], 1)))
        return out


class PLE(nn.Module):
    def __init__(self, users=120, items=200, dim=12, hidden=20):
        super().__init__()
        self.user_table = nn.Embedding(users, dim)
        self.item_table = nn.Embedding(items, dim)
        self.register_buffer("means", torch.tensor(MEANS, dtype=torch.float32), persistent=False)
        self.register_buffer("stds", torch.tensor(STDS, dtype=torch.float32), persistent=False)
        self.missing_value = nn.Parameter(torch.randn(len(MEANS)) * 0.05)
        self.norm = nn.LayerNorm(4 * dim + len(MEANS))
        self.levels = nn.ModuleList([CGC(4 * dim + len(MEANS), hidden), CGC(hidden, hidden, final=True)])
        self.towers = nn.ModuleList(
            nn.Sequential(nn.Linear(hidden, 16), nn.SiLU(), nn.Linear(16, 1), nn.Flatten(0)) for _ in range(3)
        )
        self.scale = float(torch.tensor(dim, dtype=torch.float32).sqrt())

    def interest(self, history, item):
        mask = history.ne(0)
        e = self.item_table(history)
        w = torch.sigmoid((e @ item.unsqueeze(-1)).squeeze(-1) / self.scale).masked_fill(~mask, 0.0)
        return (w.unsqueeze(1) @ e).squeeze(1) / mask.sum(1, keepdim=True).clamp(min=1)

    def numeric(self, x):
        z = (x - self.means) / self.stds
        return torch.where(x.isnan(), self.missing_value, z.nan_to_num().clamp(-4, 4))

    def forward(self, user, item, history, numbers):
        u, i = self.user_table(user), self.item_table(item)
        x = self.norm(torch.cat([u, i, self.interest(history, i), u * i, self.numeric(numbers)], dim=1))
        streams = [x] * 4
        for level in self.levels:
            streams = level(streams)
        click, like, watch = (tower(s) for tower, s in zip(self.towers, streams))
        return {"click": click, "like": F.logsigmoid(click) + F.logsigmoid(like), "watch": F.softplus(watch)}


def build():
    return PLE()


def click_loss(outputs, targets):
    return F.binary_cross_entropy_with_logits(outputs, targets.to(outputs.dtype))


def like_loss(outputs, targets):
    log_no = torch.log(-torch.expm1(outputs))
    return -torch.where(targets > 0, outputs, log_no).mean()


def watch_loss(outputs, targets):
    seen = targets >= 0
    error = torch.log1p(outputs) - torch.log1p(targets.to(outputs.dtype).clamp(min=0))
    log_cosh = error.abs() + torch.log1p(torch.exp(-2 * error.abs())) - math.log(2)
    return log_cosh.masked_fill(~seen, 0).sum() / seen.sum().clamp(min=1)
