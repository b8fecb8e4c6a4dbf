"""Graph attention regressor on padded dense molecule graphs."""

import torch
import torch.nn.functional as F
from torch import nn

FEATURES, HEADS, UNITS = 6, 3, 8


class GraphAttention(nn.Module):
    """GAT layer; heads are kept on axis 1 throughout."""

    def __init__(self, n_in, heads, units, average=False):
        super().__init__()
        self.heads, self.units, self.average = heads, units, average
        self.project = nn.Linear(n_in, heads * units, bias=False)
        self.to_self = nn.Parameter(0.5 * torch.randn(heads, units))
        self.to_other = nn.Parameter(0.5 * torch.randn(heads, units))
        self.bias = nn.Parameter(torch.zeros(units if average else heads * units))

    def forward(self, nodes, edges):
        b, n, _ = nodes.shape
        values = self.project(nodes).view(b, n, self.heads, self.units)
        values = values.permute(0, 2, 1, 3)
        own = values @ self.to_self.unsqueeze(-1)
        other = values @ self.to_other.unsqueeze(-1)
        scores = F.leaky_relu(own + other.transpose(2, 3), 0.2)
        scores = scores.masked_fill(~edges.unsqueeze(1), -1e9)
        out = scores.softmax(dim=-1) @ values
        if self.average:
            out = out.sum(dim=1) / self.heads
        else:
            out = out.transpose(1, 2).flatten(2)
        return out + self.bias


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.gat0 = GraphAttention(FEATURES, HEADS, UNITS)
        self.skip = nn.Linear(HEADS * UNITS, UNITS, bias=False)
        self.gat1 = GraphAttention(HEADS * UNITS, HEADS, UNITS, average=True)
        self.hidden = nn.Linear(2 * UNITS, 12)
        self.value = nn.Linear(12, 1)

    @staticmethod
    def readout(nodes, real):
        """Mean and maximum over the real atoms, (B, 2U)."""
        share = real.to(nodes.dtype)
        share = share / share.sum(dim=1, keepdim=True)
        mean = torch.bmm(share.unsqueeze(1), nodes).squeeze(1)
        top = nodes.masked_fill(~real.unsqueeze(-1), float("-inf")).amax(dim=1)
        return torch.cat((mean, top), dim=-1)

    def forward(self, nodes, adjacency):
        edges = adjacency > 0
        x = F.elu(self.gat0(nodes, edges))
        x = F.elu(self.gat1(x, edges) + self.skip(x))
        real = edges.diagonal(dim1=1, dim2=2)
        x = F.softplus(self.hidden(self.readout(x, real)))
        return self.value(x)
