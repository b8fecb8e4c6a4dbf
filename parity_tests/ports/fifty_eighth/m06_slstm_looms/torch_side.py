import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.lr_scheduler import LambdaLR


class SLSTM(nn.Module):
    """Block-diagonal sLSTM; gates in the order i, f | z, o, the units of a gate in (head, unit)."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.width = heads, dim // heads
        self.taps = nn.Conv1d(dim, dim, 3, groups=dim)
        self.w_if = nn.Linear(dim, 2 * dim, bias=False)
        self.w_zo = nn.Linear(dim, 2 * dim, bias=False)
        self.recurrent = nn.Parameter(0.4 * torch.randn(4, heads, self.width, self.width))
        self.bias = nn.Parameter(torch.zeros(4, heads, self.width))
        self.scale = nn.Parameter(torch.ones(dim))
        self.shift = nn.Parameter(torch.zeros(dim))
        with torch.no_grad():
            self.bias[1].fill_(1.0)

    def forward(self, x):
        b, t, d = x.shape
        smooth = F.silu(self.taps(F.pad(x.mT, (2, 0)))).mT
        driven = torch.cat([self.w_if(smooth), self.w_zo(x)], dim=-1).view(b, t, 4, self.heads, self.width)
        driven = driven + self.bias
        h = x.new_zeros(b, self.heads, self.width)
        cell = torch.zeros_like(h)
        count = torch.zeros_like(h)
        level = torch.full_like(h, -torch.inf)
        picks = []
        for now in driven.unbind(1):
            i, f, z, o = (now + torch.einsum("bhd,ghde->bghe", h, self.recurrent)).unbind(1)
            carried = F.logsigmoid(f) + level
            level = torch.maximum(carried, i).detach()  # only keeps the exponentials in range
            keep, take = torch.exp(carried - level), torch.exp(i - level)
            cell = keep * cell + take * torch.tanh(z)
            count = keep * count + take
            h = torch.sigmoid(o) * cell / (count + torch.exp(-level))
            picks.append(h)
        h = F.layer_norm(torch.stack(picks, 1), (self.width,)).flatten(2)
        return torch.addcmul(self.shift, h, self.scale)


class GLU(nn.Module):
    def __init__(self, dim, inner):
        super().__init__()
        self.inp = nn.Linear(dim, 2 * inner)
        self.out = nn.Linear(inner, dim)

    def forward(self, x):
        value, gate = self.inp(x).chunk(2, dim=-1)
        return self.out(value * F.silu(gate))


class Residual(nn.Module):
    def __init__(self, dim, inner):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.inner = inner

    def forward(self, x):
        return x + self.inner(self.norm(x))


class Loom(nn.Module):
    def __init__(self, channels=4, dim=12, heads=3, inner=16, blocks=2):
        super().__init__()
        self.lift = nn.Linear(channels, dim)
        self.layers = nn.Sequential(
            *(Residual(dim, m) for _ in range(blocks) for m in (SLSTM(dim, heads), GLU(dim, inner)))
        )
        self.read = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 1), nn.Flatten(1))

    def forward(self, picks):
        return self.read(self.layers(self.lift(picks)))


def build():
    return Loom()


def optimizer(params, ends=(15, 30), factors=(1.0, 0.5, 0.125)):
    opt = torch.optim.SGD(params, lr=0.0625)
    return opt, LambdaLR(opt, lambda step: factors[sum(step > end for end in ends)])
