import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width=16, heads=2):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))

    def forward(self, x):
        q, k, v = self.qkv(self.norms[0](x)).unflatten(-1, (3, self.heads, -1)).unbind(2)
        share = torch.einsum("bqhd,bkhd->bhqk", q * q.shape[-1] ** -0.5, k).softmax(-1)
        x = x + self.proj(torch.einsum("bhqk,bkhd->bqhd", share, v).flatten(2))
        return x + self.mlp(self.norms[1](x))


class FTTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        # One table for all columns. The summary token stands last: attention does not care.
        self.register_buffer("begin", torch.tensor([0, 10, 14]), persistent=False)
        self.table = nn.Embedding(21, 16)
        self.scale = nn.Parameter(torch.randn(5, 16))
        self.shift = nn.Parameter(torch.randn(5, 16))
        self.summary = nn.Parameter(torch.randn(1, 1, 16))
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.norm = nn.LayerNorm(16)
        self.out = nn.Linear(16, 3)

    def forward(self, numeric, category):
        n = numeric.shape[0]
        numbers = torch.addcmul(self.shift, numeric[..., None], self.scale)
        x = torch.cat([self.table(category.long() + self.begin), numbers, self.summary.expand(n, 1, 16)], 1)
        for block in self.blocks:
            x = block(x)
        return self.out(F.relu(self.norm(x[:, -1])))


def pinball(output, target):
    q = output.new_tensor([0.1, 0.5, 0.9])
    error = target.reshape(-1, 1) - output
    return torch.where(error >= 0, q * error, (q - 1) * error).mean()
