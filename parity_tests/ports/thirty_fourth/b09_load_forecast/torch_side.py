import torch
from torch import nn


class RevIN(nn.Module):
    def __init__(self, channels, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def normalise(self, x):
        var, mean = torch.var_mean(x.detach(), dim=1, correction=0, keepdim=True)
        self.stats = mean, (var + self.eps).sqrt()
        return (x - self.stats[0]) / self.stats[1] * self.weight + self.bias

    def denormalise(self, y):
        mean, std = self.stats
        return (y - self.bias) / (self.weight + self.eps) * std + mean


class EncoderBlock(nn.Module):
    def __init__(self, dim, heads, hidden, dropout=0.1):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=1e-6)
        self.attn = nn.MultiheadAttention(dim, heads, dropout=dropout)
        self.norm2 = nn.LayerNorm(dim, eps=1e-6)
        self.mlp = nn.Sequential(nn.Linear(dim, hidden), nn.SiLU(), nn.Linear(hidden, dim))
        self.drop = nn.Dropout(dropout)

    def forward(self, x):
        h = self.norm1(x)
        x = x + self.drop(self.attn(h, h, h, need_weights=False)[0])
        return x + self.drop(self.mlp(self.norm2(x)))


class PatchTransformer(nn.Module):
    def __init__(self, meters=3, length=48, horizon=12, patch=8, stride=4, dim=16, heads=4, depth=2):
        super().__init__()
        self.patch, self.stride = patch, stride
        patches = (length - patch) // stride + 1
        self.revin = RevIN(meters)
        self.embed = nn.Linear(patch, dim)
        self.position = nn.Parameter(0.02 * torch.randn(patches, dim))
        self.blocks = nn.Sequential(*(EncoderBlock(dim, heads, 2 * dim) for _ in range(depth)))
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.head = nn.Linear(patches * dim, horizon)

    def forward(self, load):
        b, _, m = load.shape
        x = self.revin.normalise(load).transpose(1, 2)
        x = x.unfold(-1, self.patch, self.stride).flatten(0, 1)  # (b m), patches, patch
        x = self.norm(self.blocks(self.embed(x) + self.position))
        y = self.head(x.flatten(1)).view(b, m, -1).transpose(1, 2)
        return self.revin.denormalise(y)


def build():
    return PatchTransformer()
