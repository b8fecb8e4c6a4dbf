import torch
from torch import nn
from torch.nn import functional as F

NODES = 12


def adjacency():
    a = torch.eye(NODES)
    edges = [(i, (i + 1) % NODES) for i in range(NODES)] + [(0, 5), (2, 9), (4, 11)]
    for i, j in edges:
        a[i, j] = a[j, i] = 1
    return a.bool()


class GATLayer(nn.Module):
    def __init__(self, inputs, units):
        super().__init__()
        self.fc = nn.Linear(inputs, units, bias=False)
        self.attn_receiver = nn.Linear(units, 1, bias=False)
        self.attn_sender = nn.Linear(units, 1, bias=False)
        self.bias = nn.Parameter(torch.zeros(units))
        self.register_buffer("edges", adjacency(), persistent=False)

    def forward(self, x):
        h = self.fc(x)
        scores = F.leaky_relu(self.attn_receiver(h) + self.attn_sender(h).transpose(1, 2))
        weights = F.softmax(scores.masked_fill(~self.edges, -1e9), dim=1)
        return torch.bmm(weights, h) + self.bias


class GAT(nn.Module):
    def __init__(self):
        super().__init__()
        self.gat1 = GATLayer(6, 16)
        self.gat2 = GATLayer(16, 16)
        self.classes = nn.Linear(16, 4)

    def forward(self, nodes):
        return self.classes(F.elu(self.gat2(F.elu(self.gat1(nodes)))))
