"""Solubility model, PyTorch: forward(atoms, bonds, present) -> (N, 1)."""

import torch
import torch.nn.functional as F
from torch import nn


class GraphConv(nn.Module):
    """Graph convolution; expects the inverse root degrees (self loop included).

    Self loops are added as the node's own message, so the adjacency does not
    have to be copied, and neighbours are summed before the linear map.
    """

    def __init__(self, n_in, n_out, act=F.relu):
        super().__init__()
        self.lin = nn.Linear(n_in, n_out)
        self.act = act

    def forward(self, x, bonds, inv_sqrt):
        scaled = x * inv_sqrt
        message = (torch.bmm(bonds, scaled) + scaled) * inv_sqrt
        return self.act(self.lin(message))


class GatedReadout(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.gate = nn.Linear(n_in, n_out)
        self.value = nn.Linear(n_in, n_out)

    def forward(self, x, present):
        # tanh(v) = 2 sigmoid(2 v) - 1
        value = 2 * torch.sigmoid(2 * self.value(x)) - 1
        gated = torch.sigmoid(self.gate(x)) * value
        return torch.einsum("nif,ni->nf", gated, present)


class MoleculeGCN(nn.Module):
    def __init__(self, n_features=7):
        super().__init__()
        self.conv1 = GraphConv(n_features, 18)
        self.conv2 = GraphConv(18, 18)
        self.conv3 = GraphConv(18, 14, torch.tanh)
        self.drop = nn.Dropout(0.15)
        self.readout = GatedReadout(14 + n_features, 16)
        self.hidden = nn.Linear(16, 12)
        self.logS = nn.Linear(12, 1)

    def forward(self, atoms, bonds, present):
        # bonds is symmetric: column sums are the degrees too
        degree = bonds.sum(dim=1) + 1
        inv_sqrt = degree.rsqrt().unsqueeze(-1)
        h = self.conv1(atoms, bonds, inv_sqrt)
        h = h + self.conv2(h, bonds, inv_sqrt)
        h = self.drop(self.conv3(h, bonds, inv_sqrt))
        g = self.readout(torch.cat([h, atoms], dim=-1), present)
        return self.logS(F.selu(self.hidden(g)))
