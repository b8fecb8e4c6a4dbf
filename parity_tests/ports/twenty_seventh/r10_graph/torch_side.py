import torch
import torch.nn.functional as F
from torch import nn


class GAT(nn.Module):
    def __init__(self, cin, units, heads):
        super().__init__()
        self.heads = heads
        self.lin = nn.Linear(cin, units * heads, bias=False)
        self.a_to = nn.Parameter(torch.empty(heads, units))
        self.a_from = nn.Parameter(torch.empty(heads, units))
        nn.init.xavier_uniform_(self.a_to)
        nn.init.xavier_uniform_(self.a_from)

    def forward(self, h, adj):
        b, n, _ = h.shape
        z = self.lin(h).view(b, n, self.heads, -1).transpose(1, 2)
        to = torch.einsum("bhnu,hu->bhn", z, self.a_to)
        fro = torch.einsum("bhnu,hu->bhn", z, self.a_from)
        e = F.leaky_relu(to.unsqueeze(-1) + fro.unsqueeze(-2), 0.2)
        linked = (adj > 0) | torch.eye(n, dtype=torch.bool, device=adj.device)
        w = e.masked_fill(~linked.unsqueeze(1), float("-inf")).softmax(-1)
        return F.elu((w @ z).transpose(1, 2).reshape(b, n, -1))


class Net(nn.Module):
    def __init__(self, f=5, rounds=3):
        super().__init__()
        self.rounds = rounds
        self.gat = GAT(f, 4, 3)
        self.message = nn.Linear(12, 12)
        self.cell = nn.GRUCell(12, 12)
        self.gate = nn.Linear(12 + f, 12)
        self.value = nn.Linear(12, 12)
        self.energy = nn.Linear(12, 1)

    def forward(self, adj, mask, nodes):
        h = self.gat(nodes, adj)
        p = adj / adj.sum(-1, keepdim=True).clamp(min=1)
        for _ in range(self.rounds):
            m = p @ self.message(h)
            h = self.cell(m.flatten(0, 1), h.flatten(0, 1)).view_as(h)
        r = torch.sigmoid(self.gate(torch.cat([h, nodes], -1))) * torch.tanh(self.value(h))
        g = (r * mask.unsqueeze(-1)).sum(1) / mask.sum(1, keepdim=True)
        return self.energy(g)


def build():
    return Net()
