from collections.abc import Sequence

import torch
from torch import nn


class FieldEmbedding(nn.Module):
    def __init__(self, buckets: Sequence[int], dims: Sequence[int]):
        super().__init__()
        self.register_buffer("buckets", torch.tensor(buckets, dtype=torch.long))
        self.emb = nn.ModuleList([nn.Embedding(n, d) for n, d in zip(buckets, dims)])
        for e in self.emb:
            nn.init.uniform_(e.weight, -0.05, 0.05)

    def forward(self, ids):
        rows = torch.fmod(ids.long(), self.buckets).abs()
        return torch.cat([e(r) for e, r in zip(self.emb, rows.unbind(1))], dim=1)


class MixtureCross(nn.Module):
    def __init__(self, dim, depth=3, experts=3, rank=6):
        super().__init__()
        self.router = nn.ModuleList(nn.Linear(dim, experts, bias=False) for _ in range(depth))
        for r in self.router:
            nn.init.normal_(r.weight, std=0.6)
        self.bias = nn.ParameterList(nn.Parameter(torch.zeros(dim)) for _ in range(depth))
        make = lambda *shape: nn.ParameterList(
            nn.Parameter(torch.randn(experts, *shape) * 0.4) for _ in range(depth)
        )
        self.V, self.C, self.U = make(dim, rank), make(rank, rank), make(rank, dim)

    def forward(self, x0):
        x = x0
        for V, C, U, bias, router in zip(self.V, self.C, self.U, self.bias, self.router):
            h = x.expand(V.shape[0], -1, -1)  # E, B, D
            h = torch.bmm(torch.bmm(torch.bmm(h, V).tanh(), C).tanh(), U)
            gates = router(x0).softmax(dim=1)
            x = torch.addcmul(x, x0, torch.einsum("be,ebd->bd", gates, h) + bias)
        return x


class DCNMix(nn.Module):
    def __init__(self):
        super().__init__()
        dims = (8, 8, 6, 6, 4, 4)
        total = 6 + sum(dims)
        self.register_buffer("scale", torch.tensor([3.0, 2.0, 4.0, 1.0, 2.5, 1.5]))
        self.fields = FieldEmbedding((50, 40, 30, 20, 12, 8), dims)
        self.norm = nn.LayerNorm(6, eps=1e-4)
        self.cross = MixtureCross(total)
        self.deep = nn.Sequential(nn.Linear(total, 48), nn.PReLU(48), nn.Linear(48, 24), nn.PReLU(24))
        self.click = nn.Linear(total + 24, 1)

    def forward(self, counts, ids):
        dense = self.norm(counts.relu().log1p() / self.scale)
        x0 = torch.cat([dense, self.fields(ids)], dim=1)
        return self.click(torch.cat([self.cross(x0), self.deep(x0)], dim=1))


def build():
    return DCNMix()
