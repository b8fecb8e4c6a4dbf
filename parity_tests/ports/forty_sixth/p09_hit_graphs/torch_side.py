"""Interaction network over hit graphs. Padded graphs are packed into one large graph before message passing."""

import torch
import torch.nn.functional as F
from torch import nn


class MLP(nn.Module):
    def __init__(self, d_in, d, norm=True):
        super().__init__()
        self.fc1 = nn.Linear(d_in, 2 * d)
        self.fc2 = nn.Linear(2 * d, d)
        self.norm = nn.LayerNorm(d) if norm else nn.Identity()

    def forward(self, *xs):
        return self.norm(self.fc2(F.silu(self.fc1(torch.cat(xs, dim=-1)))))


class TrackGNN(nn.Module):
    def __init__(self, d=24, rounds=3):
        super().__init__()
        self.rounds = rounds
        self.embed_edge = MLP(4, d)
        self.embed_node = MLP(4, d)
        self.phi_e = MLP(3 * d, d)
        self.attention = nn.Linear(d, 1)
        self.phi_v = MLP(4 * d, d)
        self.classify = nn.ModuleList([MLP(3 * d, d, norm=False), nn.Linear(d, 1)])

    @staticmethod
    def edge_attributes(pos, src, dst):
        dr, dphi, dz = (pos[dst] - pos[src]).unbind(-1)
        dphi = torch.atan2(dphi.sin(), dphi.cos())
        return torch.stack([dr, dphi, dz, dphi / (dr.abs() + 0.05)], dim=-1)

    def forward(self, hits, segments, present):
        batch, n, _ = hits.shape
        keep = present.bool()
        offset = torch.arange(batch, device=hits.device)[:, None] * n
        src = (segments[..., 0].long() + offset)[keep]
        dst = (segments[..., 1].long() + offset)[keep]

        pos = hits.reshape(batch * n, 3)
        r, phi, z = pos.unbind(-1)
        v0 = v = self.embed_node(torch.stack([r, phi.cos(), phi.sin(), z], dim=-1))
        e = self.embed_edge(self.edge_attributes(pos, src, dst))
        in_degree = torch.bincount(dst, minlength=batch * n).clamp(min=1).to(e.dtype).unsqueeze(-1)
        for _ in range(self.rounds):
            e = e + self.phi_e(e, v[src], v[dst])
            msg = e * torch.sigmoid(self.attention(e))
            agg = torch.zeros_like(v).index_add(0, dst, msg)
            v = v + self.phi_v(v, v0, agg * 8.0**-0.5, agg / in_degree)

        hidden, out = self.classify
        score = out(F.silu(hidden(e, v[src], v[dst]))).squeeze(-1)
        return hits.new_zeros(keep.shape).masked_scatter(keep, score)


def build():
    return TrackGNN()


def loss(outputs, targets):
    valid = targets >= 0
    logits, y = outputs[valid], targets[valid].to(outputs.dtype)
    bce = F.binary_cross_entropy_with_logits(logits, y, reduction="none")
    p_t = torch.where(y > 0, logits.sigmoid(), (-logits).sigmoid())
    alpha_t = torch.where(y > 0, 0.75, 0.25)
    return (alpha_t * (1 - p_t).square() * bce).mean()
