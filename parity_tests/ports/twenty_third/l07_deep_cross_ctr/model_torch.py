"""Deep & cross click model in PyTorch: forward(ids, dense) -> logits (N, 1)."""

import torch
from torch import nn

FIELDS = [(40, 8), (25, 6), (6, 3)]  # campaign, site, device
SITE = 1


def log_scale(t):
    """Signed log(1 + |t|)."""
    return torch.where(t < 0, -torch.log1p(-t.clamp(max=0)), torch.log1p(t.clamp(min=0)))


class CrossStack(nn.Module):
    """Cross layers x <- x0 * (x V U + b) + x, all with the same x0."""

    def __init__(self, dim, rank, depth):
        super().__init__()
        self.v = nn.ParameterList()
        self.u = nn.ParameterList()
        self.b = nn.ParameterList()
        for _ in range(depth):
            self.v.append(nn.init.xavier_uniform_(torch.empty(dim, rank)))
            self.u.append(nn.init.xavier_uniform_(torch.empty(rank, dim)))
            self.b.append(torch.zeros(dim))

    def forward(self, x0):
        x = x0
        for v, u, b in zip(self.v, self.u, self.b):
            low = torch.einsum("nd,dr->nr", x, v)
            x = torch.addcmul(x, x0, torch.einsum("nr,rd->nd", low, u)) + x0 * b
        return x


class DeepCross(nn.Module):
    def __init__(self, n_dense=5, rank=4, depth=2):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(n, d) for n, d in FIELDS)
        self.tables[SITE].weight.requires_grad_(False)
        dim = sum(d for _, d in FIELDS) + n_dense
        self.cross = CrossStack(dim, rank, depth)
        self.deep1 = nn.Linear(dim, 20)
        self.deep2 = nn.Linear(20, 12)
        self.click = nn.Linear(dim + 12, 1)

    def forward(self, ids, dense):
        looked_up = [table(column) for table, column in zip(self.tables, ids.long().T)]
        x0 = torch.cat(looked_up + [log_scale(dense)], dim=1)
        deep = self.deep2(self.deep1(x0).relu()).relu()
        # the last layer on the joined vector, as two partial products
        w_cross, w_deep = self.click.weight.split([x0.shape[1], deep.shape[1]], dim=1)
        return self.cross(x0) @ w_cross.T + deep @ w_deep.T + self.click.bias


def make(model):
    params = [p for p in model.parameters() if p.requires_grad]
    return torch.optim.Adagrad(params, lr=0.0625, initial_accumulator_value=0.125, eps=1e-12)
