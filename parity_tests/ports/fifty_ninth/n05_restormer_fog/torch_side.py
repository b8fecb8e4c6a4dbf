import math

import torch
from torch import einsum, nn
from torch.nn import functional as F


class Gain(nn.Module):
    """The bias-free norm, over the channels of (b, c, h, w)."""

    def __init__(self, c):
        super().__init__()
        self.g = nn.Parameter(torch.ones(c))

    def forward(self, x):
        return F.rms_norm(x.movedim(1, -1), self.g.shape, self.g, eps=1e-5).movedim(-1, 1)


class Sep(nn.Sequential):
    """1x1, then depthwise 3x3"""

    def __init__(self, n_in, n_out):
        super().__init__(
            nn.Conv2d(n_in, n_out, 1, bias=False),
            nn.Conv2d(n_out, n_out, 3, padding=1, groups=n_out, bias=False),
        )


class Layer(nn.Module):
    def __init__(self, c, heads):
        super().__init__()
        self.heads = heads
        self.ff_out = nn.Conv2d(2 * c, c, 1, bias=False)
        self.ff_lin, self.ff_gate = Sep(c, 2 * c), Sep(c, 2 * c)
        self.at_out = nn.Conv2d(c, c, 1, bias=False)
        self.v, self.k, self.q = Sep(c, c), Sep(c, c), Sep(c, c)
        self.scale = nn.Parameter(torch.ones(heads, 1, 1))
        self.n2, self.n1 = Gain(c), Gain(c)

    def channels(self, x):
        q, k, v = (m(x).unflatten(1, (self.heads, -1)) for m in (self.q, self.k, self.v))
        q, k = (t * t.square().sum((-2, -1), keepdim=True).add(1e-6).rsqrt() for t in (q, k))
        w = (einsum("bnchw,bndhw->bncd", q, k) * self.scale).softmax(-1)
        return self.at_out(einsum("bncd,bndhw->bnchw", w, v).flatten(1, 2))

    def forward(self, x):
        x = x + self.channels(self.n1(x))
        y = self.n2(x)
        return x + self.ff_out(F.gelu(self.ff_gate(y), approximate="tanh") * self.ff_lin(y))


def fold(x):
    """(b, c, 2h, 2w) to (b, 4c, h, w), the channels inside."""
    return torch.cat([x[..., i::2, j::2] for i in (0, 1) for j in (0, 1)], 1)


def unfold(x):
    b, c, h, w = x.shape
    return x.view(b, 2, 2, c // 4, h, w).permute(0, 3, 4, 1, 5, 2).reshape(b, c // 4, 2 * h, 2 * w)


class Defog(nn.Module):
    def __init__(self, c=8):
        super().__init__()
        self.tail = nn.ModuleList([Layer(c, 2), Layer(c, 2)])
        self.body = nn.Sequential(Layer(2 * c, 4), Layer(2 * c, 4))
        self.first = Layer(c, 2)
        self.fuse_skip = nn.Conv2d(c, c, 1, bias=False)
        self.fuse_deep = nn.Conv2d(c, c, 1, bias=False)
        self.out = nn.Conv2d(c, 1, 3, padding=1, bias=False)
        self.up = nn.Conv2d(2 * c, 4 * c, 3, padding=1, bias=False)
        self.down = nn.Conv2d(c, c // 2, 3, padding=1, bias=False)
        self.into = nn.Conv2d(1, c, 3, padding=1, bias=False)

    def forward(self, foggy):
        shallow = self.first(self.into(foggy[:, None]))
        deep = unfold(self.up(self.body(fold(self.down(shallow)))))
        x = self.fuse_deep(deep) + self.fuse_skip(shallow)
        for layer in self.tail:
            x = layer(x)
        return foggy + self.out(x)[:, 0]


def loss(outputs, targets):
    return torch.sqrt((outputs - targets) ** 2 + 1e-2**2).mean()


def optimizer(params, peak=0.01, warmup=8, total=60):
    def factor(i):
        if i < warmup:
            return (i + 1) / warmup
        return 0.5 * (1 + math.cos(math.pi * (i - warmup) / (total - warmup)))

    opt = torch.optim.SGD(params, lr=peak, momentum=0.9, nesterov=True)
    return opt, torch.optim.lr_scheduler.LambdaLR(opt, factor)


def build():
    return Defog()
