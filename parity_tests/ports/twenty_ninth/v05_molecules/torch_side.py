import torch
from torch import nn


class GINE(nn.Module):
    """Sparse version: works on the flat list of edges of the whole batch."""

    def __init__(self, dim):
        super().__init__()
        self.eps = nn.Parameter(torch.zeros(()))
        self.edge = nn.Embedding(4, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, dim))

    def forward(self, x, src, dst, kind):
        m = (x[src] + self.edge(kind)).relu()
        agg = torch.zeros_like(x).index_add(0, dst, m)
        return self.mlp((1 + self.eps) * x + agg)


class MolNet(nn.Module):
    def __init__(self, dim=10, rounds=2):
        super().__init__()
        self.atom = nn.Embedding(6, dim)
        self.virtual = nn.Parameter(0.05 * torch.randn(1, dim))
        self.convs = nn.ModuleList([GINE(dim) for _ in range(rounds)])
        self.virtual_mlps = nn.ModuleList(
            [nn.Sequential(nn.Linear(dim, dim), nn.ReLU()) for _ in range(rounds - 1)]
        )
        self.out = nn.Linear(dim, 1)

    def forward(self, atoms, bonds):
        B, n = atoms.shape
        graph, slot = torch.nonzero(atoms, as_tuple=True)  # one row per real atom
        where = torch.full((B, n), -1, dtype=torch.long, device=atoms.device)
        where[graph, slot] = torch.arange(graph.numel(), device=atoms.device)
        g, i, j = torch.nonzero(bonds, as_tuple=True)
        dst, src, kind = where[g, i], where[g, j], bonds[g, i, j].long()

        def pool(rows):
            return torch.zeros(B, rows.shape[1], dtype=rows.dtype, device=rows.device).index_add(
                0, graph, rows
            )

        x = self.atom(atoms[graph, slot].long())
        size = atoms.ne(0).sum(1, keepdim=True).to(x.dtype)
        v = self.virtual.expand(B, -1)
        for k, conv in enumerate(self.convs):
            x = x + v[graph]
            y = conv(x, src, dst, kind)
            if k < len(self.virtual_mlps):
                v = self.virtual_mlps[k](v + pool(x) / size)
                y = y.relu()
            x = y
        return self.out(pool(x) / size.sqrt())


def build():
    return MolNet()
