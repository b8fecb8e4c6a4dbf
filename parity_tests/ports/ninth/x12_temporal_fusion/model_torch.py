import torch
import torch.nn.functional as F
from torch import nn


class GRN(nn.Module):
    def __init__(self, inputs, units, outputs=None, context=None, dropout=0.1):
        super().__init__()
        outputs = outputs or units
        self.hidden = nn.Linear(inputs, units)
        self.context = nn.Linear(context, units, bias=False) if context else None
        self.linear = nn.Linear(units, units)
        self.value = nn.Linear(units, outputs)
        self.gate = nn.Linear(units, outputs)
        self.skip = nn.Identity() if inputs == outputs else nn.Linear(inputs, outputs)
        self.norm = nn.LayerNorm(outputs, eps=1e-6)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, context=None):
        h = self.hidden(x)
        if context is not None:
            h = h + self.context(context)
        h = self.dropout(self.linear(F.elu(h)))
        gated = F.glu(torch.cat([self.value(h), self.gate(h)], dim=-1))
        return self.norm(self.skip(x) + gated)


class InterpretableAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.query = nn.ModuleList([nn.Linear(dim, dim // heads) for _ in range(heads)])
        self.key = nn.ModuleList([nn.Linear(dim, dim // heads) for _ in range(heads)])
        self.value = nn.Linear(dim, dim // heads)
        self.out = nn.Linear(dim // heads, dim)

    def forward(self, x):
        v = self.value(x)
        outputs = [
            F.scaled_dot_product_attention(q(x), k(x), v, is_causal=True)
            for q, k in zip(self.query, self.key)
        ]
        return self.out(torch.stack(outputs).mean(0))


class Net(nn.Module):
    def __init__(self, dim=8, variables=5, heads=2, quantiles=3):
        super().__init__()
        self.static_grn = GRN(4, dim)
        self.embeddings = nn.ModuleList([nn.Linear(1, dim) for _ in range(variables)])
        self.selection = GRN(variables * dim, dim, variables, context=dim)
        self.attention = InterpretableAttention(dim, heads)
        self.post_norm = nn.LayerNorm(dim, eps=1e-6)
        self.final_grn = GRN(dim, dim)
        self.quantiles = nn.Linear(dim, quantiles)

    def forward(self, static, past):
        context = self.static_grn(static).unsqueeze(1)
        columns = past.split(1, dim=-1)
        embedded = [layer(column) for layer, column in zip(self.embeddings, columns)]
        weights = self.selection(torch.cat(embedded, dim=-1), context).softmax(-1)
        x = (weights.unsqueeze(-1) * torch.stack(embedded, dim=2)).sum(2)
        x = self.post_norm(x + self.attention(x))
        return self.quantiles(self.final_grn(x[:, -1]))


def pinball(output, target):
    q = torch.tensor([0.1, 0.5, 0.9], dtype=output.dtype, device=output.device)
    error = target.reshape(-1, 1) - output
    return (q * error.relu() + (1 - q) * (-error).relu()).sum(1).mean()
