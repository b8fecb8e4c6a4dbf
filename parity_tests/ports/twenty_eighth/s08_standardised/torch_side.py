import torch
import torch.nn.functional as F
from torch import nn


def same_pad(x, k, s, value=0.0):
    pads = []
    for size in (x.shape[-1], x.shape[-2]):
        total = max((-(-size // s) - 1) * s + k - size, 0)
        pads += [total // 2, total - total // 2]
    return F.pad(x, pads, value=value)


class StdConv2d(nn.Conv2d):
    def forward(self, x):
        v, m = torch.var_mean(self.weight, dim=(1, 2, 3), keepdim=True, correction=0)
        w = (self.weight - m) * torch.rsqrt(v + 1e-5)
        x = same_pad(x, self.kernel_size[0], self.stride[0])
        return F.conv2d(x, w, self.bias, self.stride)


class PreAct(nn.Module):
    def __init__(self, cin, cout, stride=1):
        super().__init__()
        self.gn1 = nn.GroupNorm(4, cin, eps=1e-3)
        self.conv1 = StdConv2d(cin, cout, 3, stride, bias=False)
        self.gn2 = nn.GroupNorm(4, cout, eps=1e-3)
        self.conv2 = StdConv2d(cout, cout, 3, bias=False)
        if stride > 1:
            self.downsample = StdConv2d(cin, cout, 1, stride, bias=False)

    def forward(self, x):
        out = F.relu(self.gn1(x))
        residual = self.downsample(out) if hasattr(self, "downsample") else x
        out = self.conv1(out)
        out = self.conv2(F.relu(self.gn2(out)))
        return out + residual


class BiT(nn.Module):
    def __init__(self):
        super().__init__()
        self.root = StdConv2d(3, 8, 5, 2, bias=False)
        self.body = nn.Sequential(PreAct(8, 8), PreAct(8, 16, 2), PreAct(16, 16))
        self.head = nn.Sequential(
            nn.GroupNorm(4, 16, eps=1e-3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 2)
        )

    def forward(self, x):
        x = self.root(x.permute(0, 3, 1, 2))
        x = F.max_pool2d(same_pad(x, 3, 2, float("-inf")), 3, 2)
        return self.head(self.body(x))


def build():
    return BiT()


class ClippedSGD(torch.optim.SGD):
    def __init__(self, params, max_norm, **kw):
        super().__init__(params, **kw)
        self.max_norm = max_norm

    @torch.no_grad()
    def step(self, closure=None):
        grads = [p.grad for g in self.param_groups for p in g["params"] if p.grad is not None]
        norm = torch.sqrt(sum(g.square().sum() for g in grads))
        if norm > self.max_norm:
            for g in grads:
                g.mul_(self.max_norm / norm)
        return super().step(closure)


def optimizer(params):
    return ClippedSGD(params, 0.5, lr=0.02, momentum=0.9, nesterov=True)
