import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


class Sp2(nn.Sequential):
    """linear, softplus, linear, softplus"""

    def __init__(self, n_in, n_mid, n_out):
        super().__init__(nn.Linear(n_in, n_mid), nn.Softplus(), nn.Linear(n_mid, n_out), nn.Softplus())


class SplitSp2(nn.Module):
    """Like Sp2 on a concatenation, but each part has a projection of its own, so that parts which are
    shared by many rows are projected once."""

    def __init__(self, parts, n_mid, n_out):
        super().__init__()
        self.to_out = nn.Linear(n_mid, n_out)
        self.offset = nn.Parameter(torch.zeros(n_mid))
        self.parts = nn.ModuleDict({k: nn.Linear(n, n_mid, bias=False) for k, n in parts.items()})

    def finish(self, total):
        return F.softplus(self.to_out(F.softplus(total + self.offset)))


class Exchange(nn.Module):
    def __init__(self, d, mid):
        super().__init__()
        self.state_in = Sp2(d, mid, d)
        self.atom_in = Sp2(d, mid, d)
        self.bond_in = Sp2(d, mid, d)
        self.on_state = SplitSp2({"state": d, "atoms": d, "bonds": d}, mid, d)
        self.on_atoms = SplitSp2({"state": d, "atom": d, "bonds": d}, mid, d)
        self.on_bonds = SplitSp2({"state": d, "bond": d, "tail": d, "head": d}, mid, d)

    def forward(self, graph, bonds, atoms, state):
        b, n, d = atoms.shape
        s, a, e = self.state_in(state), self.atom_in(atoms), self.bond_in(bonds)

        p = self.on_bonds.parts
        tails = p["tail"](a).flatten(0, 1)[graph["tail"]]
        heads = p["head"](a).flatten(0, 1)[graph["head"]]
        e = self.on_bonds.finish(p["bond"](e) + tails + heads + p["state"](s).unsqueeze(1))

        live = graph["bond_live"]
        inflow = e.new_zeros(b * n, d).index_add(0, graph["head"].flatten(), (e * live).flatten(0, 1))
        count = e.new_zeros(b * n, 1).index_add(0, graph["head"].flatten(), live.flatten(0, 1))
        inflow = (inflow / count.clamp(min=1.0)).view(b, n, d)

        p = self.on_atoms.parts
        a = self.on_atoms.finish(p["bonds"](inflow) + p["atom"](a) + p["state"](s).unsqueeze(1))

        atom_live, n_live = graph["atom_live"], graph["n_atoms"]
        pooled = torch.cat([inflow, a], -1).mul(atom_live).sum(1) / n_live
        from_bonds, from_atoms = pooled.chunk(2, -1)
        p = self.on_state.parts
        s = self.on_state.finish(p["bonds"](from_bonds) + p["atoms"](from_atoms) + p["state"](s))
        return bonds + e, atoms + a, state + s


class SetReader(nn.Module):
    def __init__(self, d, rounds):
        super().__init__()
        self.rounds = rounds
        self.gates_q = nn.Linear(d, 4 * d)
        self.gates_r = nn.Linear(d, 4 * d, bias=False)
        self.gates_h = nn.Linear(d, 4 * d, bias=False)

    def forward(self, items, live):
        query = memory = read = items.new_zeros(items.size(0), items.size(2))
        dead = live.squeeze(-1) == 0
        for _ in range(self.rounds):
            i, f, g, o = (self.gates_q(query) + self.gates_r(read) + self.gates_h(query)).chunk(4, -1)
            memory = f.sigmoid() * memory + i.sigmoid() * g.tanh()
            query = o.sigmoid() * memory.tanh()
            score = torch.bmm(items, query.unsqueeze(-1)).squeeze(-1).masked_fill(dead, float("-inf"))
            read = torch.bmm(score.softmax(-1).unsqueeze(1), items).squeeze(1)
        return query, read


class AlloyNet(nn.Module):
    def __init__(self, d=12, mid=16, n_blocks=2, n_species=9):
        super().__init__()
        self.register_buffer(
            "centres", torch.from_numpy(np.linspace(1.8, 4.6, 10).astype(np.float32)), persistent=False
        )
        self.head = nn.Sequential(
            nn.Linear(5 * d, 20), nn.Softplus(), nn.Linear(20, 12), nn.Softplus(), nn.Linear(12, 1)
        )
        self.readers = nn.ModuleDict({"bonds": SetReader(d, 3), "atoms": SetReader(d, 3)})
        self.lift_state = nn.Linear(2, d)
        self.lift_bond = nn.Linear(10, d)
        self.kinds = nn.Embedding(n_species, d)
        self.trunk = nn.ModuleList(Exchange(d, mid) for _ in range(n_blocks))

    def forward(self, species, src, dst, dist, bond_mask, ambient):
        b, n = species.shape
        shift = torch.arange(b, device=species.device).mul(n).unsqueeze(1)
        atom_live = (species != 0).to(dist.dtype).unsqueeze(-1)
        graph = {
            "tail": src.long() + shift,
            "head": dst.long() + shift,
            "bond_live": bond_mask.unsqueeze(-1),
            "atom_live": atom_live,
            "n_atoms": atom_live.sum(1),
        }
        bonds = self.lift_bond(torch.exp(-(((dist.unsqueeze(-1) - self.centres) / 0.35) ** 2)))
        atoms, state = self.kinds(species.long()), self.lift_state(ambient)
        for block in self.trunk:
            bonds, atoms, state = block(graph, bonds, atoms, state)
        seen = [
            *self.readers["atoms"](atoms, atom_live),
            *self.readers["bonds"](bonds, graph["bond_live"]),
            state,
        ]
        return self.head(torch.cat(seen, -1))


def build():
    return AlloyNet()
