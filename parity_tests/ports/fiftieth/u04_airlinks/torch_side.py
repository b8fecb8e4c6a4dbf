import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

N, D = 60, 12


def airports(seed=500371):
    rng = np.random.default_rng(seed)
    degree = np.floor(2 + 60 * np.clip(rng.pareto(1.6, N), 0, 8)).astype(np.float32)
    lat = rng.uniform(-55, 65, N)
    lon = rng.uniform(-180, 180, N)
    return degree, np.column_stack([lat, lon]).astype(np.float32)


def vose(weights):
    scaled = weights.astype(np.float64) * len(weights) / weights.sum()
    prob, other = np.ones(len(weights)), np.arange(len(weights))
    low = list(np.flatnonzero(scaled < 1))
    high = list(np.flatnonzero(scaled >= 1))
    while low and high:
        a, b = low.pop(), high.pop()
        prob[a], other[a] = scaled[a], b
        scaled[b] = scaled[b] - (1 - scaled[a])
        (low if scaled[b] < 1 else high).append(b)
    return torch.tensor(prob, dtype=torch.float32), torch.tensor(other)


class AirLinks(nn.Module):
    def __init__(self):
        super().__init__()
        degree, where = airports()
        prob, other = vose(degree**0.75)
        self.register_buffer("prob", prob, persistent=False)
        self.register_buffer("other", other, persistent=False)
        self.register_buffer(
            "arc", self._arcs(torch.from_numpy(np.deg2rad(where.astype(np.float64)))), persistent=False
        )
        self.ctx = nn.Embedding(N, D)
        self.node = nn.Embedding(N, D)
        self.peer = nn.Embedding(N, D)
        self.reach = nn.Parameter(torch.tensor([0.3, -0.2]))

    @staticmethod
    def _arcs(rad):
        lat, lon = rad.unbind(1)
        dlat, dlon = lat[:, None] - lat, lon[:, None] - lon
        h = (dlat / 2).sin() ** 2 + lat.cos()[:, None] * lat.cos() * (dlon / 2).sin() ** 2
        return h.clamp(0, 1).sqrt().asin().float()

    @torch.no_grad()
    def draw(self, u_pick, u_keep):
        slot = (u_pick * N).long()
        return torch.where(u_keep < self.prob[slot], slot, self.other[slot])

    def forward(self, source, target, u_pick, u_keep):
        source, target = source.long(), target.long()
        drawn = self.draw(u_pick, u_keep)
        ends = torch.cat([target[:, None], drawn], 1)
        near = self.reach[0] * torch.exp(-3.0 * self.arc[source[:, None], ends]) + self.reach[1]
        one = torch.einsum("bd,bkd->bk", self.peer(source), self.peer(ends)) + near
        two = torch.einsum("bd,bkd->bk", self.node(source), self.ctx(ends))
        live = ((drawn != target[:, None]) & (drawn != source[:, None])).to(one.dtype)
        return {
            "first": one[:, 0],
            "second": two[:, 0],
            "neg_first": one[:, 1:],
            "neg_second": two[:, 1:],
            "live": live,
        }


def build():
    return AirLinks()


def step(model, batch, share=0.3):
    x, flights = batch
    out = model(x["source"], x["target"], x["u_pick"], x["u_keep"])
    live = out["live"]
    scale = live.shape[1] / live.sum(1).clamp(min=1)

    def nce(pos, neg):
        return -F.logsigmoid(pos) - scale * (live * F.logsigmoid(-neg)).sum(1)

    each = torch.lerp(nce(out["second"], out["neg_second"]), nce(out["first"], out["neg_first"]), share)
    w = torch.log1p(flights.reshape(-1).to(each.dtype))
    penalty = model.node(x["source"].long()).pow(2).sum(-1).mean()
    return (w / w.sum()) @ each + 1e-2 * penalty
