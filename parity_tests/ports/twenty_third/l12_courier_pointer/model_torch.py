"""Courier dispatch in PyTorch: forward(courier, orders, valid) -> logits (N, 9)."""

import torch
import torch.nn.functional as F
from torch import nn


class OrderAttention(nn.Module):
    """Self attention between orders. Width per head is free (heads * head_dim != dim)."""

    def __init__(self, dim, heads, head_dim):
        super().__init__()
        self.heads = heads
        self.scale = head_dim**-0.25
        self.query = nn.Linear(dim, heads * head_dim)
        self.key = nn.Linear(dim, heads * head_dim)
        self.value = nn.Linear(dim, heads * head_dim)
        self.output = nn.Linear(heads * head_dim, dim)

    def split(self, x):
        return x.unflatten(-1, (self.heads, -1))

    def forward(self, x, valid):
        # half of the usual scale on either side
        q = self.split(self.query(x)) * self.scale
        k = self.split(self.key(x)) * self.scale
        score = torch.einsum("nqhd,nkhd->nqkh", q, k)
        score = score.masked_fill(~valid[:, None, :, None], float("-inf"))
        weight = score.softmax(dim=2)
        mixed = torch.einsum("nqkh,nkhd->nqhd", weight, self.split(self.value(x)))
        return self.output(mixed.flatten(2))


class Pointer(nn.Module):
    """v . tanh(W [state, order] + b), with W kept as its two column blocks."""

    def __init__(self, state_dim, order_dim, units):
        super().__init__()
        self.from_state = nn.Linear(state_dim, units, bias=False)
        self.from_order = nn.Linear(order_dim, units)
        self.score = nn.Linear(units, 1, bias=False)

    def forward(self, state, orders):
        weight = torch.cat([self.from_state.weight, self.from_order.weight], dim=1)
        repeated = state.unsqueeze(1).expand(-1, orders.shape[1], -1)
        hidden = F.linear(torch.cat([repeated, orders], dim=-1), weight, self.from_order.bias)
        return 10 * torch.tanh(self.score(torch.tanh(hidden)).squeeze(-1))


class Dispatch(nn.Module):
    def __init__(self, n_courier=4, n_order=5, dim=18, heads=3):
        super().__init__()
        self.order_embed = nn.Linear(n_order, dim)
        self.attention = OrderAttention(dim, heads, 4)
        self.norm1 = nn.LayerNorm(dim)
        self.fc1 = nn.Linear(dim, 2 * dim)
        self.fc2 = nn.Linear(2 * dim, dim)
        self.norm2 = nn.LayerNorm(dim)
        self.courier_embed = nn.Linear(n_courier, 12)
        self.pointer = Pointer(12 + dim, dim, 16)

    def forward(self, courier, orders, valid):
        valid = valid > 0.5
        x = self.order_embed(orders)
        x = self.norm1(x + self.attention(x, valid))
        x = self.norm2(x + self.fc2(F.relu(self.fc1(x))))

        share = valid.to(x.dtype) / valid.sum(dim=1, keepdim=True)
        overview = torch.einsum("nk,nkd->nd", share, x)
        state = torch.cat([torch.tanh(self.courier_embed(courier)), overview], dim=1)
        return self.pointer(state, x).masked_fill(~valid, -1e9)
