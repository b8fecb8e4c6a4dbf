import torch
import torch.nn.functional as F
from torch import nn


class EdgeConv(nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.own = nn.Linear(d_in, d_out)
        self.message = nn.Linear(d_in, d_out, bias=False)
        self.gate = nn.Linear(2 * d_in, 1)

    def forward(self, h, dst, src, order):
        gate = torch.sigmoid(self.gate(torch.cat([h[dst], h[src]], dim=-1)))
        out = self.own(h)
        got = torch.zeros_like(out).index_add(0, dst, order[:, None] * gate * self.message(h)[src])
        degree = torch.zeros_like(h[:, 0]).index_add(0, dst, order)
        return F.relu(out + got / degree.clamp(min=1.0)[:, None])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 16)
        self.conv1 = EdgeConv(16, 24)
        self.conv2 = EdgeConv(24, 24)
        self.score = nn.Linear(24, 1)
        self.head = nn.Sequential(nn.Linear(24, 16), nn.SiLU(), nn.Linear(16, 1))

    def forward(self, z, bonds):
        mol, atom = (z > 0).nonzero(as_tuple=True)
        slot = torch.zeros_like(z, dtype=torch.long)
        slot[mol, atom] = torch.arange(len(mol), device=z.device)
        b, i, j = bonds.nonzero(as_tuple=True)
        dst, src, order = slot[b, i], slot[b, j], bonds[b, i, j]

        h = self.embed(z[mol, atom])
        h = self.conv1(h, dst, src, order)
        h = self.conv2(h, dst, src, order)

        score = self.score(h).squeeze(-1)
        e = torch.exp(score - score.detach().max())
        total = torch.zeros(len(z), dtype=e.dtype, device=e.device).index_add(0, mol, e)
        share = e / total[mol]
        crystal = torch.zeros(len(z), h.shape[1], dtype=h.dtype, device=h.device)
        crystal = crystal.index_add(0, mol, share[:, None] * h)
        return self.head(crystal)
