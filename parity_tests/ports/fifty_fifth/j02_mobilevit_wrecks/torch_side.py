from functools import partial

import torch
from torch import nn
from torch.nn import functional as F


class SamePad2d(nn.Module):
    def __init__(self, k, s):
        super().__init__()
        self.k, self.s = k, s

    def forward(self, x):
        pads = []
        for n in reversed(x.shape[-2:]):
            total = max((-(-n // self.s) - 1) * self.s + self.k - n, 0)
            pads += [total // 2, total - total // 2]
        return F.pad(x, pads) if any(pads) else x


def cba(cin, cout, k=1, s=1, groups=1, act=nn.SiLU):
    mods = [SamePad2d(k, s)] if k > 1 else []
    mods += [nn.Conv2d(cin, cout, k, s, groups=groups, bias=False), nn.BatchNorm2d(cout)]
    if act is not None:
        mods.append(act())
    return nn.Sequential(*mods)


class MV2(nn.Module):
    def __init__(self, cin, cout, stride=1, t=2):
        super().__init__()
        mid = cin * t
        self.skip = stride == 1 and cin == cout
        self.layers = nn.Sequential(
            cba(cin, mid),
            cba(mid, mid, 3, stride, groups=mid),
            cba(mid, cout, act=None),
        )

    def forward(self, x):
        y = self.layers(x)
        return x + y if self.skip else y


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.proj = nn.Linear(dim, dim)
        self.qkv = nn.Linear(dim, 3 * dim)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).movedim(-3, 0).transpose(-2, -3)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.proj(y.transpose(-2, -3).flatten(-2))


class Layer(nn.Module):
    def __init__(self, dim, heads=2, ratio=2):
        super().__init__()
        self.ffn = nn.Sequential(
            nn.LayerNorm(dim), nn.Linear(dim, ratio * dim), nn.SiLU(), nn.Linear(ratio * dim, dim)
        )
        self.mha = nn.Sequential(nn.LayerNorm(dim), Attention(dim, heads))

    def forward(self, x):
        x = x + self.mha(x)
        return x + self.ffn(x)


class MobileViTBlock(nn.Module):
    def __init__(self, channels, dim, depth=2, patch=2):
        super().__init__()
        self.p = patch
        self.fuse = cba(2 * channels, channels, 3)
        self.local = nn.Sequential(cba(channels, channels, 3), nn.Conv2d(channels, dim, 1, bias=False))
        self.globl = nn.Sequential(*[Layer(dim) for _ in range(depth)], nn.LayerNorm(dim))
        self.back = cba(dim, channels)

    def forward(self, x):
        p = self.p
        H, W = x.shape[-2:]
        y = self.local(x)
        h, w = -(-H // p) * p, -(-W // p) * p
        if (h, w) != (H, W):
            y = F.interpolate(y, (h, w), mode="bilinear", align_corners=False)
        n, d = y.shape[:2]
        # (n, d, h, w) -> (n, p * p, patches, d)
        y = y.view(n, d, h // p, p, w // p, p).permute(0, 3, 5, 2, 4, 1).reshape(n, p * p, -1, d)
        y = self.globl(y)
        y = y.view(n, p, p, h // p, w // p, d).permute(0, 5, 3, 1, 4, 2).reshape(n, d, h, w)
        y = y[..., :H, :W]
        return self.fuse(torch.cat([x, self.back(y)], dim=1))


class MobileViT(nn.Module):
    def __init__(self, classes=4, widths=(8, 12, 16), dims=(16, 20), last=32):
        super().__init__()
        a, b, c = widths
        self.features = nn.Sequential(
            cba(1, a, 3, 2),
            MV2(a, a),
            MV2(a, b, 2),
            MV2(b, b),
            MobileViTBlock(b, dims[0]),
            MV2(b, c, 2),
            MobileViTBlock(c, dims[1]),
            cba(c, last),
        )
        self.classifier = nn.Linear(last, classes)

    def forward(self, x):
        # NHWC, [0, 1] -> NCHW, [-1, 1]
        x = x.permute(0, 3, 1, 2).mul(2).sub(1)
        return self.classifier(self.features(x).mean((2, 3)))


build = partial(MobileViT, classes=4)
