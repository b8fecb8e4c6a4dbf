from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


@dataclass(frozen=True)
class Config:
    kinds: int = 3
    embed: int = 8
    mix: int = 24
    hidden: tuple[int, int] = (24, 16)
    periods: tuple[float, ...] = (24.0, 12.0, 6.0)
    nodes: int = 8


class RecurrentHawkes(nn.Module):
    def __init__(self, cfg: Config = Config()):
        super().__init__()
        self.cfg = cfg
        self.log_base = nn.Parameter(torch.full((cfg.kinds,), -1.0))
        self.kind_table = nn.Embedding(cfg.kinds + 1, cfg.embed)
        self.encoder = nn.Linear(cfg.embed + 1 + 2 * len(cfg.periods), cfg.mix)
        sizes = (cfg.mix, *cfg.hidden)
        self.rnns = nn.ModuleList(nn.GRU(i, o, batch_first=True) for i, o in zip(sizes, sizes[1:]))
        self.post = nn.Sequential(nn.LayerNorm(sizes[-1], eps=1e-3), nn.Linear(sizes[-1], 20), nn.SiLU())
        self.to_jump = nn.Linear(20, cfg.kinds)
        self.to_decay = nn.Linear(20, cfg.kinds)

    def clock(self, gaps):
        now = gaps.cumsum(1)
        phase = torch.stack([now * (2 * math.pi / p) for p in self.cfg.periods], -1)
        return torch.cat([gaps.unsqueeze(-1).log1p(), phase.sin(), phase.cos()], -1)

    def forward(self, gaps, marks):
        marks = marks.long()
        counts = marks.count_nonzero(dim=1).cpu()
        z = torch.tanh(self.encoder(torch.cat([self.kind_table(marks), self.clock(gaps)], dim=-1)))
        seq = pack_padded_sequence(z, counts, batch_first=True, enforce_sorted=False)
        for rnn in self.rnns:
            seq, _ = rnn(seq)
        z, _ = pad_packed_sequence(seq, batch_first=True, total_length=marks.shape[1])
        z = self.post(z)
        jump = self.to_jump(z)
        decay = nn.functional.softplus(self.to_decay(z)) + 0.01
        return torch.stack([self.log_base.expand_as(jump), jump, decay], dim=-1)


def _gauss(n, like):
    x, w = np.polynomial.legendre.leggauss(n)
    return torch.as_tensor((x + 1) / 2).to(like), torch.as_tensor(w / 2).to(like)


def _rate(p, t):
    base, jump, decay = p.unbind(-1)
    return nn.functional.softplus(torch.addcmul(base, jump, torch.exp(-decay * t)))


def tpp_nll(p, target):
    gap, kind = target[..., 0].to(p.dtype), target[..., 1].long()
    at_event = _rate(p, gap.unsqueeze(-1))
    event = at_event.gather(-1, (kind - 1).clamp_min(0).unsqueeze(-1)).squeeze(-1)
    event = torch.where(kind > 0, (event + 1e-6).log(), torch.zeros_like(event))
    x, w = _gauss(Config.nodes, p)
    total = _rate(p.unsqueeze(2), (gap.unsqueeze(-1) * x).unsqueeze(-1)).sum(-1)  # batch, event, node
    minus_ll = gap * (total @ w) - event
    inside = kind.ne(0)
    return (minus_ll.masked_fill(~inside, 0).sum(1) / inside.sum(1)).mean()


def build() -> nn.Module:
    return RecurrentHawkes()
