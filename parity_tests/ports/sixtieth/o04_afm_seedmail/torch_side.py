"""Attentional factorisation machine for the seed catalogue."""

import torch
from torch import nn

CARDINALITIES = (9, 6, 12, 5, 8, 4)  # 0 is "not known" in each field


class AFM(nn.Module):
    def __init__(self, cardinalities=CARDINALITIES, numbers=2, dim=8, attention=12):
        super().__init__()
        self.wide = nn.ModuleList(nn.Embedding(n, 1) for n in cardinalities)
        self.tables = nn.ModuleList(nn.Embedding(n, dim, padding_idx=0) for n in cardinalities)
        self.wide_numbers = nn.Linear(numbers, 1)
        self.number_table = nn.Parameter(0.05 * torch.randn(numbers, dim))
        self.attention = nn.Sequential(
            nn.Linear(dim, attention), nn.ReLU(), nn.Linear(attention, 1, bias=False)
        )
        self.out = nn.Linear(dim, 1, bias=False)
        i, j = torch.triu_indices(len(cardinalities) + numbers, len(cardinalities) + numbers, 1)
        self.register_buffer("i", i, persistent=False)
        self.register_buffer("j", j, persistent=False)

    def forward(self, cats, nums):
        columns = cats.long().unbind(1)
        v = [table(c) for table, c in zip(self.tables, columns)]
        v = torch.cat((torch.stack(v, 1), torch.einsum("bn,nd->bnd", nums, self.number_table)), 1)
        products = v[:, self.i] * v[:, self.j]
        alpha = self.attention(products).squeeze(-1).softmax(-1)
        y = self.out(torch.einsum("bp,bpd->bd", alpha, products)) + self.wide_numbers(nums)
        return y + sum(w(c) for w, c in zip(self.wide, columns))


def build():
    return AFM()


def optimizer(parameters, lr=0.4):
    sgd = torch.optim.SGD(parameters, lr=lr, weight_decay=1e-4)
    restarts = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(sgd, T_0=8, T_mult=2, eta_min=0.05 * lr)
    return sgd, restarts
