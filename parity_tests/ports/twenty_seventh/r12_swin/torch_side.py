import torch
from torch import nn


class WindowAttention(nn.Module):
    def __init__(self, dim, heads, w):
        super().__init__()
        self.heads = heads
        self.scale = (dim // heads) ** -0.5
        self.bias_table = nn.Parameter(0.5 * torch.randn((2 * w - 1) ** 2, heads))
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        yx = torch.cartesian_prod(torch.arange(w), torch.arange(w))
        rel = yx[:, None] - yx[None] + (w - 1)
        self.register_buffer("index", rel[..., 0] * (2 * w - 1) + rel[..., 1], persistent=False)

    def forward(self, x, mask=None):
        b, n, c = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        a = q @ k.mT * self.scale + self.bias_table[self.index].permute(2, 0, 1)
        if mask is not None:
            nw = mask.shape[0]
            a = (a.view(b // nw, nw, self.heads, n, n) + mask[None, :, None]).view(b, self.heads, n, n)
        return self.proj((a.softmax(-1) @ v).transpose(1, 2).reshape(b, n, c))


def to_windows(x, w):
    b, h, wd, c = x.shape
    return x.view(b, h // w, w, wd // w, w, c).transpose(2, 3).reshape(-1, w * w, c)


def from_windows(x, w, h, wd):
    c = x.shape[-1]
    return x.view(-1, h // w, wd // w, w, w, c).transpose(2, 3).reshape(-1, h, wd, c)


class Block(nn.Module):
    def __init__(self, dim, heads, w, shift, side):
        super().__init__()
        self.w, self.shift = w, shift
        self.norm1 = nn.LayerNorm(dim)
        self.attn = WindowAttention(dim, heads, w)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
        mask = None
        if shift:
            strip = torch.zeros(side)
            strip[-w:-shift] = 1
            strip[-shift:] = 2
            zone = to_windows((3 * strip[:, None] + strip[None, :])[None, :, :, None], w).squeeze(-1)
            mask = (zone[:, :, None] != zone[:, None, :]) * -100.0
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, x):
        h, wd = x.shape[1:3]
        y = self.norm1(x).contiguous()
        if self.shift:
            y = y.roll((-self.shift, -self.shift), (1, 2))
        y = from_windows(self.attn(to_windows(y, self.w), self.mask), self.w, h, wd)
        if self.shift:
            y = y.roll((self.shift, self.shift), (1, 2))
        x = x + y
        return x + self.mlp(self.norm2(x))


class PatchMerge(nn.Module):
    def __init__(self, dim, out):
        super().__init__()
        self.norm = nn.LayerNorm(4 * dim)
        self.reduce = nn.Linear(4 * dim, out, bias=False)

    def forward(self, x):
        parts = [x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)]
        return self.reduce(self.norm(torch.cat(parts, -1)))


class Swin(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(3, 8, 2, 2)
        self.stages = nn.Sequential(
            Block(8, 2, 4, 0, 8), Block(8, 2, 4, 2, 8), PatchMerge(8, 12), Block(12, 3, 4, 0, 4)
        )
        self.norm = nn.LayerNorm(12)
        self.head = nn.Linear(12, 4)

    def forward(self, x):
        x = self.patch(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        return self.head(self.norm(self.stages(x)).mean((1, 2)))


def build():
    return Swin()
