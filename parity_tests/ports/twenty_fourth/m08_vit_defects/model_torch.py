"""Vision transformer for surface-defect tiles, plain tensor code."""

import torch
import torch.nn.functional as F
from torch import nn

SIZE, PATCH, DIM, HEADS, DEPTH, CLASSES = 24, 6, 32, 2, 2, 4


class Attention(nn.Module):
    """Self-attention with separate projections for query, key and value."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.scale = (dim // heads) ** -0.5
        self.query = nn.Linear(dim, dim)
        self.key = nn.Linear(dim, dim)
        self.value = nn.Linear(dim, dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        b, n, d = x.shape
        q = self.query(x).view(b, n, self.heads, -1)
        k = self.key(x).view(b, n, self.heads, -1)
        v = self.value(x).view(b, n, self.heads, -1)
        weights = torch.einsum("bnhd,bmhd->bhnm", q * self.scale, k).softmax(dim=-1)
        mixed = torch.einsum("bhnm,bmhd->bnhd", weights, v)
        return self.proj(mixed.reshape(b, n, d))


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=1e-6)
        self.attn = Attention(dim, heads)
        self.gain1 = nn.Parameter(torch.full((dim,), 0.5))
        self.norm2 = nn.LayerNorm(dim, eps=1e-6)
        self.fc1 = nn.Linear(dim, 2 * dim)
        self.fc2 = nn.Linear(2 * dim, dim)
        self.gain2 = nn.Parameter(torch.full((dim,), 0.5))

    def forward(self, x):
        x = self.norm1(x)
        x = x + self.gain1 * self.attn(x)
        y = self.norm2(x)
        y = self.fc2(F.gelu(self.fc1(y)))
        return x + self.gain2 * y


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        patches = (SIZE // PATCH) ** 2
        self.patches = nn.Conv2d(1, DIM, PATCH, stride=PATCH)
        self.token = nn.Parameter(0.2 * torch.randn(1, 1, DIM))
        self.position = nn.Parameter(0.2 * torch.randn(1, patches + 1, DIM))
        self.blocks = nn.ModuleList(Block(DIM, HEADS) for _ in range(DEPTH))
        self.norm = nn.LayerNorm(DIM, eps=1e-6)
        self.head = nn.Linear(DIM, CLASSES)

    def forward(self, image):
        x = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(len(x), -1, -1), x), dim=1)
        x = x + self.position
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x[:, 0]))
