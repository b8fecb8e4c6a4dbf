import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


def road_network(nodes=15, seed=3):
    place = torch.from_numpy(np.random.default_rng(seed).uniform(size=(nodes, 2)))
    d2 = (place[:, None] - place[None]).square().sum(-1)
    w = (torch.exp(-d2 / 0.1) * (d2 < 0.2)).fill_diagonal_(0)
    return w


def cheb_polynomials(w, order):
    """T_0 ... T_{order-1} of the rescaled, normalised Laplacian."""
    eye = torch.eye(len(w), dtype=w.dtype)
    root = w.sum(1).clamp_min(1e-12).rsqrt()
    lap = eye - root[:, None] * w * root
    lap = 2 * lap / torch.linalg.eigvalsh(lap).max() - eye
    terms = [eye, lap]
    while len(terms) < order:
        terms.append(2 * lap * terms[-1] - terms[-2])
    return torch.stack(terms)


class TemporalGate(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv = nn.Conv2d(inputs, 2 * outputs, (3, 1))
        self.extra = outputs - inputs

    def forward(self, x):
        skip = F.pad(x[:, :, 2:], (0, 0, 0, 0, 0, self.extra))
        return F.glu(self.conv(x), dim=1) + skip


class STBlock(nn.Module):
    def __init__(self, inputs, outputs, polynomials):
        super().__init__()
        self.gate_in = TemporalGate(inputs, outputs)
        self.theta = nn.Parameter(torch.empty(len(polynomials), outputs, outputs))
        self.theta_bias = nn.Parameter(torch.zeros(outputs, 1, 1))
        nn.init.xavier_uniform_(self.theta)
        self.gate_out = TemporalGate(outputs, outputs)
        self.norm = nn.LayerNorm([polynomials.shape[-1], outputs], eps=1e-3)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x, polynomials):
        x = self.gate_in(x)
        x = F.relu(torch.einsum("knm,bctm,kcd->bdtn", polynomials, x, self.theta) + self.theta_bias + x)
        x = self.gate_out(x).permute(0, 2, 3, 1)
        return self.dropout(self.norm(x)).permute(0, 3, 1, 2)


class STGCN(nn.Module):
    def __init__(self):
        super().__init__()
        polynomials = cheb_polynomials(road_network(), 3).to(torch.get_default_dtype())
        self.register_buffer("polynomials", polynomials, persistent=False)
        self.blocks = nn.ModuleList([STBlock(2, 12, polynomials), STBlock(12, 16, polynomials)])
        self.collapse = nn.Conv2d(16, 16, (4, 1))
        self.out = nn.Conv2d(16, 1, 1)

    def forward(self, x):
        for block in self.blocks:
            x = block(x, self.polynomials)
        return self.out(self.collapse(x).sigmoid()).flatten(1)
