import math

import torch
from torch import nn
from torch.nn import functional as F


class SubGraph(nn.Module):
    def __init__(self, inputs, dim):
        super().__init__()
        self.fc1 = nn.Linear(inputs, dim)
        self.fc2 = nn.Linear(2 * dim, dim)

    def forward(self, x):
        h = self.fc1(x).relu()
        h = torch.cat([h, h.max(-2, keepdim=True).values.expand_as(h)], -1)
        return self.fc2(h).relu().max(-2).values


class EgoAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.to_q = nn.Linear(dim, dim)
        self.to_k = nn.Linear(dim, dim)
        self.to_v = nn.Linear(dim, dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, query, tokens, keep):
        q = self.to_q(query)[:, None].unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k = self.to_k(tokens).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        v = self.to_v(tokens).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=keep[:, None, None])
        return self.proj(out.flatten(1))


class JunctionNet(nn.Module):
    def __init__(self, dim=24, modes=4, horizon=10):
        super().__init__()
        self.modes, self.horizon = modes, horizon
        self.lane_graph = SubGraph(2, dim)
        self.car_graph = SubGraph(4, dim)
        self.attention = EgoAttention(dim, 6)
        self.norm = nn.LayerNorm(dim)
        self.fc = nn.Linear(dim, 32)
        self.score_head = nn.Linear(32, modes)
        self.path_head = nn.Linear(32, modes * horizon * 2)

    @staticmethod
    def rotation(angle):
        c, s = angle.cos(), angle.sin()
        return torch.stack([torch.stack([c, s], -1), torch.stack([-s, c], -1)], -2)

    def forward(self, ego, near, near_valid, lanes, lanes_valid):
        pose = ego[:, -1]
        rot = self.rotation(pose[:, 2])

        def to_frame(points):
            return torch.einsum("bij,bnpj->bnpi", rot, points - pose[:, None, None, :2]) / 20.0

        tracks = torch.cat([ego[:, None], near], 1)
        angle = torch.fmod(tracks[..., 2] - pose[:, None, None, 2] + math.pi, 2 * math.pi) - math.pi
        cars = self.car_graph(
            torch.cat([to_frame(tracks[..., :2]), angle[..., None], tracks[..., 3:] / 10.0], -1)
        )
        tokens = torch.cat([cars, self.lane_graph(to_frame(lanes))], 1)
        keep = F.pad(torch.cat([near_valid, lanes_valid], 1).bool(), (1, 0), value=True)
        me = cars[:, 0]
        x = F.silu(self.fc(self.norm(me + self.attention(me, tokens, keep))))
        steps = self.path_head(x).view(-1, self.modes, self.horizon, 2)
        return {"paths": steps.cumsum(2), "scores": self.score_head(x)}


def build():
    return JunctionNet()


def step(model, batch):
    x, y = batch
    out = model(x["ego"], x["near"], x["near_valid"], x["lanes"], x["lanes_valid"])
    paths = out["paths"]
    future = y["future"].to(paths.dtype)[:, None].expand_as(paths)
    valid = y["future_valid"].to(paths.dtype)
    with torch.no_grad():
        best = (paths - future).norm(dim=-1).mean(-1).argmin(1)
    rows = torch.arange(len(best), device=best.device)
    huber = F.smooth_l1_loss(paths[rows, best], future[rows, best], reduction="none").sum(-1)
    regression = (huber * valid).sum(1) / valid.sum(1)
    return regression.mean() + 0.5 * F.cross_entropy(out["scores"], best)
