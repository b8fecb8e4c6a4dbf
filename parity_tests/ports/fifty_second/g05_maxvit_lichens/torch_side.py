"""Small MaxViT for lichen photographs."""

from collections import OrderedDict

import torch
import torch.nn.functional as F
from torch import nn


def bn(width):
    return nn.BatchNorm2d(width, eps=1e-3, momentum=0.01)


class SqueezeExcite(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.down = nn.Conv2d(width, inner, 1)
        self.up = nn.Conv2d(inner, width, 1)

    def forward(self, x):
        s = F.adaptive_avg_pool2d(x, 1)
        return x * self.up(F.silu(self.down(s))).sigmoid()


class MBConv(nn.Module):
    def __init__(self, inp, out, stride):
        super().__init__()
        mid = 2 * out
        pad = nn.ZeroPad2d((0, 1, 0, 1) if stride == 2 else 1)
        self.body = nn.Sequential(
            OrderedDict(
                pre=bn(inp),
                expand=nn.Conv2d(inp, mid, 1, bias=False),
                bn1=bn(mid),
                act1=nn.SiLU(),
                pad=pad,
                depth=nn.Conv2d(mid, mid, 3, stride, groups=mid, bias=False),
                bn2=bn(mid),
                act2=nn.SiLU(),
                se=SqueezeExcite(mid, out // 4),
                project=nn.Conv2d(mid, out, 1),
            )
        )
        short = []
        if stride == 2:
            short.append(nn.AvgPool2d(2))
        if inp != out:
            short.append(nn.Conv2d(inp, out, 1))
        self.short = nn.Sequential(*short)

    def forward(self, x):
        return self.short(x) + self.body(x)


class PartitionAttention(nn.Module):
    """Attention inside p x p windows, or among the p x p tokens of a dilated grid."""

    def __init__(self, dim, heads, p=4, grid=False):
        super().__init__()
        self.heads, self.p, self.grid = heads, p, grid
        self.scale = (dim // heads) ** -0.5
        self.norm1 = nn.LayerNorm(dim)
        self.to_qkv = nn.Linear(dim, 3 * dim)
        self.to_out = nn.Linear(dim, dim)
        self.rel_bias = nn.Parameter(torch.empty(2 * p - 1, 2 * p - 1, heads))
        nn.init.trunc_normal_(self.rel_bias, std=0.2)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
        r = torch.arange(p)
        row, col = r.repeat_interleave(p), r.repeat(p)
        self.register_buffer("dy", row[:, None] - row + p - 1, persistent=False)
        self.register_buffer("dx", col[:, None] - col + p - 1, persistent=False)

    def split(self, x):
        b, h, w, c = x.shape
        p = self.p
        if self.grid:
            x = x.view(b, p, h // p, p, w // p, c).permute(0, 2, 4, 1, 3, 5)
        else:
            x = x.view(b, h // p, p, w // p, p, c).permute(0, 1, 3, 2, 4, 5)
        return x.reshape(-1, p * p, c)

    def merge(self, x, h, w):
        p, c = self.p, x.shape[-1]
        x = x.view(-1, h // p, w // p, p, p, c)
        x = x.permute(0, 3, 1, 4, 2, 5) if self.grid else x.permute(0, 1, 3, 2, 4, 5)
        return x.reshape(-1, h, w, c)

    def attend(self, x):
        n, t, c = x.shape
        q, k, v = self.to_qkv(x).view(n, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        bias = self.rel_bias[self.dy, self.dx].permute(2, 0, 1)
        out = F.scaled_dot_product_attention(q * self.scale, k, v, attn_mask=bias.expand(n, -1, -1, -1))
        return self.to_out(out.transpose(1, 2).reshape(n, t, c))

    def forward(self, x):
        h, w = x.shape[1:3]
        x = x + self.merge(self.attend(self.split(self.norm1(x))), h, w)
        return x + self.mlp(self.norm2(x))


class MaxViTBlock(nn.Module):
    def __init__(self, inp, out, stride, heads):
        super().__init__()
        self.conv = MBConv(inp, out, stride)
        self.local = PartitionAttention(out, heads)
        self.dilated = PartitionAttention(out, heads, grid=True)

    def forward(self, x):
        x = self.conv(x).permute(0, 2, 3, 1)
        return self.dilated(self.local(x)).permute(0, 3, 1, 2)


class MaxViT(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        self.stem = nn.Sequential(
            nn.ZeroPad2d((0, 1, 0, 1)), nn.Conv2d(3, 12, 3, 2, bias=False), bn(12), nn.SiLU()
        )
        self.blocks = nn.Sequential(MaxViTBlock(12, 16, 2, 2), MaxViTBlock(16, 24, 1, 3))
        self.head = nn.Sequential(nn.LayerNorm(24), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, classes))

    def forward(self, photo):
        x = self.blocks(self.stem(photo.permute(0, 3, 1, 2)))
        return self.head(x.mean((2, 3)))


def build():
    return MaxViT()
