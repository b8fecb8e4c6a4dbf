import torch as th
import torch.nn as nn
import torch.nn.functional as F


class GraphEncoder(nn.Module):
    def __init__(self, width=20, fp=24, rounds=3, n_elements=9, n_bonds=5):
        super().__init__()
        self.rounds = rounds
        self.emb = nn.ModuleDict(
            {
                "bond": nn.Embedding(n_bonds, width),
                "element": nn.Embedding(n_elements, width),
                "ring": nn.Embedding(2, width),
            }
        )
        self.msg_from = nn.Linear(width, width, bias=False)
        self.msg_to = nn.Linear(width, width)
        self.cell = nn.GRUCell(width, width)
        self.readout_gate = nn.Linear(2 * width, fp)
        self.readout = nn.Linear(width, fp)

    def forward(self, atoms, bonds):
        B, N, _ = atoms.shape
        kind, ring = atoms.long().unbind(-1)
        bonds = bonds.long()
        x = self.emb["element"](kind) + self.emb["ring"](ring)
        edge = self.emb["bond"](bonds)
        no_edge = bonds.eq(0).unsqueeze(-1)
        deg = bonds.sum(-1, keepdim=True).clamp(min=1)

        h = x
        for _ in range(self.rounds):
            m = F.relu(self.msg_to(h)[:, :, None] + self.msg_from(h)[:, None] + edge)
            m = m.masked_fill(no_edge, 0.0).sum(2) / deg
            h = self.cell(h.flatten(0, 1), m.flatten(0, 1)).view(B, N, -1)

        gate = th.sigmoid(self.readout_gate(th.cat((h, x), -1)))
        return th.einsum("bn,bnf->bf", kind.gt(0).to(h.dtype), gate * th.tanh(self.readout(h)))


class YieldNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.graph = GraphEncoder()
        self.conditions = nn.Sequential(nn.Linear(4, 12), nn.GELU())
        self.mlp = nn.Sequential(
            nn.LayerNorm(60, eps=1e-3), nn.Linear(60, 32), nn.GELU(), nn.Linear(32, 1), nn.Sigmoid()
        )
        self.register_buffer("shift", th.tensor([70.0, 0.5, 0.5, 0.5]))
        self.register_buffer("scale", th.tensor([20.0, 0.29, 0.29, 0.5]))

    def forward(self, r_atoms, r_bonds, p_atoms, p_bonds, conditions):
        n = len(r_atoms)
        fp = self.graph(th.cat((r_atoms, p_atoms)), th.cat((r_bonds, p_bonds)))
        before, after = fp[:n], fp[n:]
        cond = self.conditions((conditions - self.shift) / self.scale)
        return self.mlp(th.cat((before, after - before, cond), dim=1))


def build():
    return YieldNet()
