import torch
from torch import nn


class TalkingHeads(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.before = nn.Linear(heads, heads)
        self.after = nn.Linear(heads, heads)
        self.project = nn.Linear(dim, dim)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        scores = (q * (c // self.heads) ** -0.5) @ k.transpose(-2, -1)
        weights = self.before(scores.permute(0, 2, 3, 1)).softmax(-2)
        weights = self.after(weights).permute(0, 3, 1, 2)
        return self.project((weights @ v).transpose(1, 2).reshape(b, n, c))


class ClassAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.project = nn.Linear(dim, dim)

    def forward(self, x):
        b, n, c = x.shape
        q = self.q(x[:, :1]).view(b, 1, self.heads, -1).transpose(1, 2)
        k = self.k(x).view(b, n, self.heads, -1).transpose(1, 2)
        v = self.v(x).view(b, n, self.heads, -1).transpose(1, 2)
        weights = (q @ k.transpose(-2, -1) / (c // self.heads) ** 0.5).softmax(-1)
        return self.project((weights @ v).transpose(1, 2).reshape(b, 1, c))


class Block(nn.Module):
    def __init__(self, dim, heads, attention, scale=0.1):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=1e-6)
        self.attention = attention(dim, heads)
        self.norm2 = nn.LayerNorm(dim, eps=1e-6)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
        self.gamma1 = nn.Parameter(torch.full((dim,), scale))
        self.gamma2 = nn.Parameter(torch.full((dim,), scale))

    def forward(self, x):
        x = x + self.gamma1 * self.attention(self.norm1(x))
        return x + self.gamma2 * self.mlp(self.norm2(x))


class ClassBlock(Block):
    def forward(self, cls, x):
        both = torch.cat([cls, self.norm1(x)], dim=1)
        cls = cls + self.gamma1 * self.attention(both)
        return cls + self.gamma2 * self.mlp(self.norm2(cls))


class Net(nn.Module):
    def __init__(self, dim=16, heads=4, classes=5):
        super().__init__()
        self.embed = nn.Linear(12, dim)
        self.position = nn.Parameter(0.05 * torch.randn(1, 9, dim))
        self.blocks = nn.ModuleList([Block(dim, heads, TalkingHeads) for _ in range(2)])
        self.cls = nn.Parameter(0.05 * torch.randn(1, 1, dim))
        self.class_blocks = nn.ModuleList([ClassBlock(dim, heads, ClassAttention) for _ in range(2)])
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.head = nn.Linear(dim, classes)

    def forward(self, patches):
        x = self.embed(patches) + self.position
        for block in self.blocks:
            x = block(x)
        cls = self.cls.expand(len(x), -1, -1)
        for block in self.class_blocks:
            cls = block(cls, x)
        return self.head(self.norm(cls)[:, 0])
