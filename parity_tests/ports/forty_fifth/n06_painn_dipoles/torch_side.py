import math

import torch
from torch import nn

ATOM_REF = [0.0, -0.6, 0.0, 0.0, 0.0, 0.0, -38.07, -54.75, -75.22, -99.87]


def mlp(n_in, n_hidden, n_out, bias=True):
    return nn.Sequential(nn.Linear(n_in, n_hidden), nn.SiLU(), nn.Linear(n_hidden, n_out, bias=bias))


def scatter_sum(src, index, size):
    return src.new_zeros(size, *src.shape[1:]).index_add_(0, index, src)


def safe_norm(v):
    return (v.square().sum(1) + 1e-8).sqrt()


class BesselBasis(nn.Module):
    def __init__(self, n_rbf, cutoff):
        super().__init__()
        self.n_rbf, self.cutoff = n_rbf, cutoff

    def forward(self, r):
        k = torch.arange(1, self.n_rbf + 1, dtype=r.dtype, device=r.device) * (math.pi / self.cutoff)
        return torch.sin(r.unsqueeze(-1) * k) / r.unsqueeze(-1)


class PaiNNInteraction(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.context = mlp(n, n, 3 * n)

    def forward(self, q, mu, W, unit, idx_i, idx_j):
        x = W * self.context(q)[idx_j]
        dq, dmu_r, dmu_mu = x.chunk(3, dim=-1)
        dmu = dmu_r.unsqueeze(1) * unit.unsqueeze(-1) + dmu_mu.unsqueeze(1) * mu[idx_j]
        return q + scatter_sum(dq, idx_i, len(q)), mu + scatter_sum(dmu, idx_i, len(q))


class PaiNNMixing(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.intra = mlp(2 * n, n, 3 * n)
        self.channel_mix = nn.Linear(n, 2 * n, bias=False)

    def forward(self, q, mu):
        mu_w, mu_v = self.channel_mix(mu).chunk(2, dim=-1)
        dq, dmu, dqmu = self.intra(torch.cat([q, safe_norm(mu_v)], -1)).chunk(3, dim=-1)
        return q + dq + dqmu * (mu_v * mu_w).sum(1), mu + dmu.unsqueeze(1) * mu_w


class PaiNN(nn.Module):
    def __init__(self, n=24, n_rbf=12, n_layers=3, cutoff=4.0, max_z=10):
        super().__init__()
        self.cutoff, self.n, self.n_layers = cutoff, n, n_layers
        self.z_embedding = nn.Embedding(max_z, n)
        self.rbf = BesselBasis(n_rbf, cutoff)
        self.filter_net = nn.Linear(n_rbf, n_layers * 3 * n)
        self.interactions = nn.ModuleList(PaiNNInteraction(n) for _ in range(n_layers))
        self.mixings = nn.ModuleList(PaiNNMixing(n) for _ in range(n_layers))
        self.energy_head = mlp(n, n // 2, 1, bias=False)
        self.dipole_mix = nn.Linear(n, n + 1, bias=False)
        self.dipole_gate = mlp(2 * n, n, 2, bias=False)
        self.register_buffer("atom_ref", torch.tensor(ATOM_REF, dtype=torch.float32), persistent=False)

    def neighbors(self, z, pos):
        """Atoms of all molecules in one list, and the directed edges between those nearer than the cutoff."""
        real = z.ne(0)
        number = (real.flatten().cumsum(0) - 1).view_as(z)
        near = torch.cdist(pos, pos, compute_mode="donot_use_mm_for_euclid_dist") < self.cutoff
        near = near & real.unsqueeze(2) & real.unsqueeze(1)
        near.diagonal(dim1=1, dim2=2).fill_(False)
        b, i, j = near.nonzero(as_tuple=True)
        return real, number[b, i], number[b, j]

    def dipole(self, q, mu, pos, molecule, size):
        v, direct = self.dipole_mix(mu).split([self.n, 1], dim=-1)
        charge, gate = self.dipole_gate(torch.cat([q, safe_norm(v)], -1)).chunk(2, -1)
        count = molecule.bincount(minlength=size).unsqueeze(-1)
        charge = charge - (scatter_sum(charge, molecule, size) / count)[molecule]
        return scatter_sum(gate * direct.squeeze(-1) + charge * pos, molecule, size)

    def forward(self, numbers, positions):
        numbers = numbers.long()
        real, idx_i, idx_j = self.neighbors(numbers, positions)
        molecule = real.nonzero(as_tuple=True)[0]
        z, pos, size = numbers[real], positions[real], len(numbers)

        r_ij = pos[idx_j] - pos[idx_i]
        d = torch.linalg.vector_norm(r_ij, dim=-1)
        fcut = 0.5 * (torch.cos(d * (math.pi / self.cutoff)) + 1)
        filters = (self.filter_net(self.rbf(d)) * fcut.unsqueeze(-1)).chunk(self.n_layers, dim=-1)
        unit = r_ij / d.unsqueeze(-1)

        q = self.z_embedding(z)
        mu = q.new_zeros(len(q), 3, self.n)
        for interaction, mixing, W in zip(self.interactions, self.mixings, filters):
            q, mu = interaction(q, mu, W, unit, idx_i, idx_j)
            q, mu = mixing(q, mu)

        atomic = self.energy_head(q) + self.atom_ref.to(q.dtype)[z].unsqueeze(-1)
        return {
            "energy": scatter_sum(atomic, molecule, size),
            "dipole": self.dipole(q, mu, pos, molecule, size),
        }


def build():
    return PaiNN()
