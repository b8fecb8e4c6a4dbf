"""D-MPNN on one large disjoint graph."""

import torch
import torch.nn.functional as F
from torch import nn


def scatter_sum(values, index, size):
    return values.new_zeros(size, values.shape[-1]).index_add_(0, index, values)


class BondMessagePassing(nn.Module):
    def __init__(self, d_v=10, d_e=5, d_h=40, depth=3):
        super().__init__()
        self.W_i = nn.Linear(d_v + d_e, d_h, bias=False)
        self.W_h = nn.Linear(d_h, d_h, bias=False)
        self.W_o = nn.Linear(d_v + d_h, d_h)
        self.depth = depth

    def forward(self, V, E, edge_index, rev_index):
        src, dst = edge_index
        H0 = F.silu(self.W_i(torch.cat([V[src], E], 1)))
        H = H0
        for _ in range(self.depth):
            M = scatter_sum(H, dst, len(V))
            H = F.silu(H0 + self.W_h(M[src] - H[rev_index]))
        M = scatter_sum(H, src, len(V))
        return F.silu(self.W_o(torch.cat([V, M], 1)))


class MPNN(nn.Module):
    def __init__(self, d_h=40, n_tasks=2):
        super().__init__()
        self.ffn = nn.Sequential(nn.Linear(d_h, d_h), nn.SiLU(), nn.Linear(d_h, n_tasks))
        self.mp = BondMessagePassing(d_h=d_h)

    def forward(self, atoms, bonds, dst, rev, src):
        b, n, _ = atoms.shape
        real_atom = atoms.ne(0).any(-1)
        real_edge = src >= 0

        def number(mask):
            return (mask.flatten().cumsum(0) - 1).view_as(mask)

        atom_id, edge_id = number(real_atom), number(real_edge)
        row = torch.arange(b, device=src.device).unsqueeze(1).expand_as(src)[real_edge]
        edge_index = torch.stack([atom_id[row, src[real_edge].long()], atom_id[row, dst[real_edge].long()]])
        rev_index = edge_id[row, rev[real_edge].long()]
        h = self.mp(atoms[real_atom], bonds[real_edge], edge_index, rev_index)
        molecule = torch.arange(b, device=src.device).unsqueeze(1).expand(b, n)[real_atom]
        size = real_atom.sum(1, keepdim=True).clamp(min=1).to(h.dtype)
        return self.ffn(scatter_sum(h, molecule, b) / size.sqrt())


def masked_mse(outputs, targets):
    known = targets.isfinite()
    return F.mse_loss(outputs[known], targets[known])


def build():
    return MPNN()
