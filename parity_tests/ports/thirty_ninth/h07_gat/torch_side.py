from __future__ import annotations

import torch
import torch.nn as nn
import torch.nn.functional as F


class GATBlock(nn.Module):
    def __init__(self, d: int, heads: int, d_edge: int):
        super().__init__()
        self.heads, self.dh = heads, d // heads
        self.lin = nn.Linear(d, d, bias=False)
        self.att_i = nn.Parameter(nn.init.xavier_uniform_(torch.empty(heads, self.dh)))
        self.att_j = nn.Parameter(nn.init.xavier_uniform_(torch.empty(heads, self.dh)))
        self.lin_edge = nn.Linear(d_edge, heads, bias=False)
        self.bias = nn.Parameter(torch.zeros(d))
        self.norm = nn.LayerNorm(d, eps=1e-3)

    def forward(self, x, edge_attr, blocked, keep):
        b, n, d = x.shape
        h = self.lin(x).view(b, n, self.heads, self.dh).transpose(1, 2)  # b h n d
        to = torch.einsum("bhnd,hd->bhn", h, self.att_i)
        frm = torch.einsum("bhnd,hd->bhn", h, self.att_j)
        logits = to[..., :, None] + frm[..., None, :] + self.lin_edge(edge_attr).permute(0, 3, 2, 1)
        alpha = F.leaky_relu(logits, 0.2).masked_fill(blocked[:, None], float("-inf")).softmax(dim=-1)
        y = F.elu((alpha @ h).transpose(1, 2).reshape(b, n, d) + self.bias)
        return self.norm(x + y) * keep


class ReactionGAT(nn.Module):
    def __init__(self, n=10, d=24, heads=3):
        super().__init__()
        self.encode = nn.ModuleDict(
            {
                "edge": nn.Sequential(nn.Linear(3, 8), nn.ReLU()),
                "node": nn.Sequential(nn.Linear(5, d), nn.Tanh()),
            }
        )
        self.blocks = nn.ModuleList([GATBlock(d, heads, 8) for _ in range(2)])
        self.readout = nn.Sequential(nn.Linear(2 * d, 16), nn.SiLU(), nn.Linear(16, 1))
        self.node_head = nn.Linear(d, 4)
        self.register_buffer("self_loops", torch.eye(n, dtype=torch.bool))

    def forward(self, nodes, edges, adj, mask):
        keep = mask.unsqueeze(-1)
        blocked = ~(adj.bool() | self.self_loops)
        e, x = self.encode["edge"](edges), self.encode["node"](nodes)
        for block in self.blocks:
            x = block(x, e, blocked, keep)
        total = x.sum(dim=1)
        g = torch.cat([total / keep.sum(dim=1), total * 0.1], dim=-1)
        return {"energy": self.readout(g), "kind": self.node_head(x)}


def build() -> nn.Module:
    return ReactionGAT()


def energy_loss(pred, y):
    return F.smooth_l1_loss(pred, y, beta=0.5)


def kind_loss(logits, y):
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), y.reshape(-1).long(), ignore_index=-1)
