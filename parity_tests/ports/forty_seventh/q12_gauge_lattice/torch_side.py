"""Lattice gauge-equivariant network for U(1), in complex arithmetic."""

import torch
import torch.nn.functional as F
from torch import nn

DIMS = (1, 2)


def plaquette(theta):
    tx, ty = theta.unbind(-1)
    return tx + ty.roll(-1, 1) - tx.roll(-1, 2) - ty


class LConv(nn.Module):
    def __init__(self, c_in, c_out):
        super().__init__()
        std = (0.5 / (5 * c_in)) ** 0.5
        self.w_re = nn.Parameter(torch.randn(5, c_in, c_out) * std)
        self.w_im = nn.Parameter(torch.randn(5, c_in, c_out) * std)

    def forward(self, phi, u):
        taps = [phi]
        for mu, dim in enumerate(DIMS):
            link = u[..., mu, None]
            taps.append(link * phi.roll(-1, dim))
            taps.append(link.conj() * phi.roll(1, dim))
        w = torch.complex(self.w_re, self.w_im)
        return torch.einsum("bxykc,kcd->bxyd", torch.stack(taps, -2), w)


class ComplexRMSNorm(nn.Module):
    def __init__(self, c, eps=1e-3):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(c))
        self.eps = eps

    def forward(self, phi):
        ms = torch.view_as_real(phi).square().mean((-2, -1)).unsqueeze(-1)
        return phi * (self.scale * torch.rsqrt(ms + self.eps))


class Block(nn.Module):
    def __init__(self, c_in, c):
        super().__init__()
        self.conv = LConv(c_in, c)
        self.norm = ComplexRMSNorm(c)
        self.gate = nn.Linear(c + 2, c)

    def forward(self, phi, u, plaq):
        phi = self.norm(self.conv(phi, u))
        g = self.gate(torch.cat([abs2(phi), plaq], -1)).sigmoid()
        return phi * g


def abs2(z):
    return z.real.square() + z.imag.square()


class LatticeNet(nn.Module):
    def __init__(self, c=10, depth=3):
        super().__init__()
        self.blocks = nn.ModuleList(Block(1 if i == 0 else c, c) for i in range(depth))
        self.local = nn.Linear(2 * c + 2, 24)
        self.head = nn.Linear(24, 2)

    def forward(self, links, matter):
        u = torch.polar(torch.ones_like(links), links)
        plaq = plaquette(links)
        plaq = torch.stack([plaq.cos(), plaq.sin()], -1)
        phi0 = torch.view_as_complex(matter.contiguous()).unsqueeze(-1)
        phi = self.blocks[0](phi0, u, plaq)
        for block in self.blocks[1:]:
            phi = phi + block(phi, u, plaq)
        overlap = (phi0.conj() * phi).real
        h = F.softplus(self.local(torch.cat([abs2(phi), overlap, plaq], -1)))
        return self.head(h.mean(DIMS))


def build():
    return LatticeNet()
