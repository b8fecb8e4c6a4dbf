import torch
from torch import nn
from torch.nn import functional as F


class Rotary(nn.Module):
    """Turns neighbouring channels as complex numbers."""

    def __init__(self, length, width, base=1000.0):
        super().__init__()
        steps = torch.arange(0, width, 2, dtype=torch.float64) / width
        angles = torch.outer(torch.arange(length, dtype=torch.float64), base**-steps)
        self.register_buffer("angles", angles, persistent=False)

    def forward(self, x):
        cos, sin = (f(self.angles).to(x.dtype)[:, None] for f in (torch.cos, torch.sin))
        a, b = x.unflatten(-1, (-1, 2)).unbind(-1)
        return torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2)


class Attention(nn.Module):
    def __init__(self, heads, groups, width, length):
        super().__init__()
        total = heads * width
        self.heads, self.groups = heads, groups
        self.q = nn.Linear(total, total, bias=False)
        self.k = nn.Linear(total, groups * width, bias=False)
        self.v = nn.Linear(total, groups * width, bias=False)
        self.out = nn.Linear(total, total, bias=False)
        self.rotary = Rotary(length, width)

    def forward(self, x):
        q = self.rotary(self.q(x).unflatten(-1, (self.heads, -1)))
        k = self.rotary(self.k(x).unflatten(-1, (self.groups, -1)))
        v = self.v(x).unflatten(-1, (self.groups, -1))
        q = q.unflatten(2, (self.groups, -1))
        scores = torch.einsum("bqgrd,bkgd->bgrqk", q, k) * q.shape[-1] ** -0.5
        future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=x.device).triu(1)
        weights = scores.masked_fill(future, float("-inf")).softmax(-1)
        return self.out(torch.einsum("bgrqk,bkgd->bqgrd", weights, v).flatten(2))


class Feed(nn.Module):
    def __init__(self, total):
        super().__init__()
        self.gate = nn.Linear(total, 2 * total, bias=False)
        self.up = nn.Linear(total, 2 * total, bias=False)
        self.down = nn.Linear(2 * total, total, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Language(nn.Module):
    def __init__(self, vocabulary=60, length=20, heads=4, groups=2, width=8, depth=2):
        super().__init__()
        total = heads * width
        self.table = nn.Embedding(vocabulary, total)
        self.drop = nn.Dropout(0.125)
        self.blocks = nn.ModuleList()
        for _ in range(depth):
            attention, feed = Attention(heads, groups, width, length), Feed(total)
            for part in (attention, feed):
                self.blocks.append(nn.Sequential(nn.RMSNorm(total, eps=1e-6), part, self.drop))
        self.norm = nn.RMSNorm(total, eps=1e-6)

    def forward(self, tokens):
        x = self.drop(self.table(tokens))
        for block in self.blocks:
            x = x + block(x)
        return F.linear(self.norm(x), self.table.weight)
