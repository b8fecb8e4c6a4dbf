"""DeepHit for compressors: one softmax over causes and bins (PyTorch)."""

import torch
import torch.nn as nn
import torch.nn.functional as F

N_BINS = 12
N_CAUSES = 2


class PreNormMLP(nn.Sequential):
    def __init__(self, d):
        super().__init__(nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.SiLU(), nn.Linear(2 * d, d))

    def forward(self, x):
        return super().forward(x) + x


class CauseHeads(nn.Module):
    """The heads of all causes at once: a joint first layer, then one grouped product."""

    def __init__(self, d_in, d_hidden):
        super().__init__()
        self.first = nn.ModuleList(nn.Linear(d_in, d_hidden) for _ in range(N_CAUSES))
        self.last = nn.ModuleList(nn.Linear(d_hidden, N_BINS) for _ in range(N_CAUSES))

    def forward(self, x):
        weight = torch.cat([f.weight for f in self.first])
        bias = torch.cat([f.bias for f in self.first])
        hidden = F.selu(F.linear(x, weight, bias)).unflatten(1, (N_CAUSES, -1))
        weight = torch.stack([f.weight for f in self.last])
        bias = torch.stack([f.bias for f in self.last])
        return torch.einsum("bkh,kth->bkt", hidden, weight) + bias


class CompetingRisks(nn.Module):
    def __init__(self, n_sensors=10, n_sites=6, d=16):
        super().__init__()
        self.heads = CauseHeads(d + n_sensors, 14)
        self.trunk = nn.Sequential(nn.Linear(n_sensors + 4, d), PreNormMLP(d), PreNormMLP(d))
        self.sites = nn.Embedding(n_sites, 4)

    def forward(self, sensors, site):
        h = self.trunk(torch.cat((sensors, self.sites(site.long())), 1))
        return self.heads(torch.cat((h, sensors), 1))


_MIDDLES = (0.25, 0.75, 1.5, 2.5, 3.5, 5.0, 7.0, 9.0, 11.5, 14.5, 18.0, 23.0)
_SCALE = 0.04


def loss(outputs, targets):
    when, cause = targets.long().unbind(1)
    logits = outputs.flatten(1)
    total = logits.logsumexp(1)
    failed = cause > 0

    rows = torch.arange(len(when), device=logits.device)
    hit = outputs[rows, (cause - 1).clamp_min(0), when]
    bins = torch.arange(N_BINS, device=logits.device)
    gone = (bins <= when[:, None])[:, None, :].expand_as(outputs)
    rest = outputs.masked_fill(gone & ~failed[:, None, None], float("-inf")).flatten(1).logsumexp(1)
    nll = total - torch.where(failed, hit, rest)

    middles = outputs.new_tensor(_MIDDLES)
    life = torch.softmax(logits, 1).view_as(outputs).sum(1) @ middles
    gap = _SCALE * (middles[when] - life)
    gap = torch.where(failed, gap, gap.clamp(min=0))
    return nll.mean() + gap.pow(2).mean()


def build():
    return CompetingRisks()
