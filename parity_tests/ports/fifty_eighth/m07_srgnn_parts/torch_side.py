import torch
import torch.nn.functional as F
from torch import nn


class GGNN(nn.Module):
    def __init__(self, dim, rounds=2):
        super().__init__()
        self.dim, self.rounds = dim, rounds
        self.edges = nn.Linear(dim, 2 * dim)  # incoming | outgoing
        self.weight_ih = nn.Parameter(torch.empty(3 * dim, 2 * dim))
        self.weight_hh = nn.Parameter(torch.empty(3 * dim, dim))
        self.bias_ih = nn.Parameter(torch.zeros(3 * dim))
        self.bias_hh = nn.Parameter(torch.zeros(3 * dim))
        for w in (self.weight_ih, self.weight_hh):
            nn.init.uniform_(w, -(dim**-0.5), dim**-0.5)

    @staticmethod
    def walks(adjacency):
        """Normalised matrices of both directions, (batch, 2, node, node)."""
        along = adjacency / adjacency.sum(-1, keepdim=True).clamp_min(1)
        return torch.stack((along.mT, along), dim=1)

    def forward(self, h, adjacency):
        b, n, d = h.shape
        walks = self.walks(adjacency)
        for _ in range(self.rounds):
            sent = self.edges(h).view(b, n, 2, d).transpose(1, 2)
            a = (walks @ sent).transpose(1, 2).reshape(b, n, 2 * d)
            i_gates, i_new = F.linear(a, self.weight_ih, self.bias_ih).split((2 * d, d), dim=-1)
            h_gates, h_new = F.linear(h, self.weight_hh).split((2 * d, d), dim=-1)
            b_gates, b_new = self.bias_hh.split((2 * d, d))
            r, z = torch.sigmoid(i_gates + h_gates + b_gates).chunk(2, dim=-1)
            h = torch.lerp(torch.tanh(i_new + r * h_new + b_new), h, z)
        return h


class SRGNN(nn.Module):
    def __init__(self, items=24, dim=16):
        super().__init__()
        self.item = nn.Embedding(items, dim)
        nn.init.uniform_(self.item.weight, -(dim**-0.5), dim**-0.5)
        self.gnn = GGNN(dim)
        self.q1 = nn.Linear(dim, dim)
        self.q2 = nn.Linear(dim, dim, bias=False)
        self.q3 = nn.Linear(dim, 1, bias=False)
        self.merge = nn.Linear(2 * dim, dim, bias=False)

    @staticmethod
    def adjacency(place, known, n, like):
        a = like.new_zeros(len(place), n, n)
        rows = torch.arange(len(place), device=place.device).unsqueeze(1).expand_as(place[:, 1:])
        real = known[:, 1:].bool()
        a[rows[real], place[:, :-1][real], place[:, 1:][real]] = 1
        return a

    def forward(self, inputs):
        nodes, place, known = (inputs[k].long() for k in ("nodes", "place", "known"))
        h = self.item(nodes)
        h = self.gnn(h, self.adjacency(place, known, nodes.size(1), h))
        rows = torch.arange(len(h), device=h.device)
        seq = h[rows.unsqueeze(1), place]
        last = seq[rows, known.sum(1) - 1]
        alpha = self.q3(torch.sigmoid(self.q1(last).unsqueeze(1) + self.q2(seq))).squeeze(-1)
        overall = torch.einsum("bt,btd->bd", alpha.masked_fill(known == 0, 0.0), seq)
        return self.merge(torch.cat((overall, last), dim=-1)) @ self.item.weight[1:].T


def build():
    return SRGNN()
