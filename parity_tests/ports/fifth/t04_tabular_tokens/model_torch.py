import math

import torch
from torch import nn
from torch.nn import functional as F

DIM = 24


class Tokenizer(nn.Module):
    def __init__(self, numbers, codes):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(numbers, DIM) * DIM**-0.5)
        self.bias = nn.Parameter(torch.zeros(numbers, DIM))
        self.cls = nn.Parameter(torch.randn(DIM) * DIM**-0.5)
        self.embeddings = nn.ModuleList(nn.Embedding(size, DIM) for size in codes)

    def forward(self, numbers, codes):
        cls = self.cls.expand(len(numbers), 1, -1)
        numeric = torch.addcmul(self.bias, numbers.unsqueeze(-1), self.weight)
        categorical = torch.stack([e(codes[:, i]) for i, e in enumerate(self.embeddings)], dim=1)
        return torch.cat([cls, numeric, categorical], dim=1)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_attention = nn.LayerNorm(DIM)
        self.attention = nn.MultiheadAttention(DIM, 4, dropout=0.1, batch_first=True)
        self.ln_mlp = nn.LayerNorm(DIM)
        self.mlp = nn.Sequential(nn.Linear(DIM, 48), nn.GELU(), nn.Dropout(0.1), nn.Linear(48, DIM))

    def forward(self, x):
        x = self.ln_attention(x)
        x = x + self.attention(x, x, x, need_weights=False)[0]
        x = self.ln_mlp(x)
        return x + self.mlp(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokenizer = Tokenizer(6, (5, 9, 14))
        self.layers = nn.ModuleList(Layer() for _ in range(2))
        self.ln = nn.LayerNorm(DIM)
        self.heads = nn.ModuleDict({"filed": nn.Linear(DIM, 1), "amount": nn.Linear(DIM, 1)})

    def forward(self, numbers, codes):
        x = self.tokenizer(numbers, codes)
        for layer in self.layers:
            x = layer(x)
        x = self.ln(x[:, 0]).relu()
        return {name: head(x) for name, head in self.heads.items()}


def weighted_mean(values, weights):
    values = values.flatten()
    if weights is None:
        return values.mean()
    weights = weights.flatten()
    return (values * weights).sum() / weights.sum()


def filed_loss(output, target, weights=None):
    losses = F.binary_cross_entropy_with_logits(output, target.to(output).view_as(output), reduction="none")
    return weighted_mean(losses, weights)


def amount_loss(output, target, weights=None):
    error = output - target.view_as(output)
    return weighted_mean(error + F.softplus(-2 * error) - math.log(2), weights)
