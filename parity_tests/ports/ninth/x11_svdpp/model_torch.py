import torch
from torch import nn

USERS, ITEMS = 15, 21


class Net(nn.Module):
    def __init__(self, dim=6):
        super().__init__()
        self.user_factors = nn.Embedding(USERS, dim, padding_idx=0)
        self.item_factors = nn.Embedding(ITEMS, dim)
        self.implicit = nn.Embedding(ITEMS, dim, padding_idx=0)
        self.user_bias = nn.Embedding(USERS, 1)
        self.item_bias = nn.Embedding(ITEMS, 1)
        self.mean = nn.Parameter(torch.zeros(1))

    def forward(self, user, item, history):
        seen = (history != 0).to(self.mean.dtype)
        count = seen.sum(1, keepdim=True).clamp(min=1)
        taste = torch.einsum("bn,bnd->bd", seen, self.implicit(history)) / count
        p = self.user_factors(user) + taste
        dot = (p * self.item_factors(item)).sum(-1, keepdim=True)
        return dot + self.user_bias(user) + self.item_bias(item) + self.mean


def optimizer(model):
    params = model.parameters() if isinstance(model, nn.Module) else model
    return torch.optim.SGD(params, lr=0.125, momentum=0.5, weight_decay=0.0625)
