"""DeepAR in PyTorch."""

import torch
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    def __init__(self, items=10, context=12, units=8):
        super().__init__()
        self.context = context
        self.kind = nn.Embedding(items, 4)
        self.hidden = nn.Linear(4, units)
        self.cell = nn.Linear(4, units)
        self.lstm = nn.LSTM(5, units, batch_first=True)
        nn.init.zeros_(self.lstm.bias_hh_l0).requires_grad_(False)  # Keras has one bias
        self.mean = nn.Linear(units, 1)
        self.shape = nn.Linear(units, 1)

    def forward(self, counts, item):
        weeks = counts.shape[1]
        scale = 1 + counts.mean(1, keepdim=True)
        before = F.pad(counts, (1, -1)) / scale
        kind = self.kind(item)
        x = torch.cat([before.unsqueeze(2), kind.unsqueeze(1).expand(-1, weeks, -1)], dim=2)
        hidden = self.hidden(kind).tanh()
        cell = self.cell(kind).tanh()
        x, _ = self.lstm(x, (hidden[None], cell[None]))
        mean = F.softplus(self.mean(x)) * scale[:, None]
        shape = F.softplus(self.shape(x)) * scale[:, None].rsqrt()
        return torch.cat([mean, shape], dim=2)


def loss(output, y):
    mean, shape = output.unbind(2)
    seen, k, r = y >= 0, y.clamp(min=0), 1 / shape
    value = torch.lgamma(k + r) - torch.lgamma(k + 1) - torch.lgamma(r)
    value = value - (r + k) * torch.log1p(shape * mean) + k * mean.log()
    return (-(value * seen).sum(1) / seen.sum(1)).mean()
