import math

import torch
import torch.nn.functional as F
from torch import nn

FRAMES = [(40, 24, 5, 1), (24, 24, 3, 2), (24, 32, 3, 3), (32, 48, 1, 1)]
SPEAKERS, SCALE = 8, 12.0
MOMENTUM, EPS = 0.1, 1e-5


class Net(nn.Module):
    """All parameters live here; the rest is torch.nn.functional."""

    def __init__(self):
        super().__init__()

        def weight(*shape):
            return nn.Parameter(torch.randn(*shape) / math.sqrt(math.prod(shape[1:])))

        self.taps, self.shifts, self.gammas, self.betas = (nn.ParameterList() for _ in range(4))
        for i, (cin, cout, size, _) in enumerate(FRAMES):
            self.taps.append(weight(cout, cin, size))
            self.shifts.append(nn.Parameter(torch.zeros(cout)))
            self.gammas.append(nn.Parameter(torch.ones(cout)))
            self.betas.append(nn.Parameter(torch.zeros(cout)))
            self.register_buffer(f"mean{i}", torch.zeros(cout))
            self.register_buffer(f"var{i}", torch.ones(cout))
        self.squeeze, self.squeeze_b = weight(8, 48), nn.Parameter(torch.zeros(8))
        self.excite, self.excite_b = weight(48, 8), nn.Parameter(torch.zeros(48))
        self.score, self.score_b = weight(16, 48), nn.Parameter(torch.zeros(16))
        self.attend = nn.Parameter(torch.randn(16) / 4)
        self.embed, self.embed_b = weight(24, 96), nn.Parameter(torch.zeros(24))
        self.prototypes = weight(SPEAKERS, 24)

    def normalise(self, x, i):
        mean, var = getattr(self, f"mean{i}"), getattr(self, f"var{i}")
        if self.training:
            m = x.mean((0, 2))
            v = (x - m[:, None]).square().mean((0, 2))
            with torch.no_grad():
                mean.mul_(1 - MOMENTUM).add_(MOMENTUM * m)
                var.mul_(1 - MOMENTUM).add_(MOMENTUM * v)
        else:
            m, v = mean, var
        scale = self.gammas[i] * torch.rsqrt(v + EPS)
        return x * scale[:, None] + (self.betas[i] - m * scale)[:, None]

    def forward(self, mel):
        x = mel.transpose(1, 2)
        x = x - x.mean(2, keepdim=True)
        for i, (_, _, size, dilation) in enumerate(FRAMES):
            x = F.conv1d(x, self.taps[i], self.shifts[i], padding="same", dilation=dilation)
            x = self.normalise(F.relu(x), i)
        gate = F.relu(F.linear(x.mean(2), self.squeeze, self.squeeze_b))
        gate = F.hardsigmoid(F.linear(gate, self.excite, self.excite_b))
        x = x * gate[..., None]
        score = torch.tanh(torch.einsum("bct,hc->bht", x, self.score) + self.score_b[:, None])
        a = torch.einsum("bht,h->bt", score, self.attend).softmax(1)
        mean = torch.einsum("bct,bt->bc", x, a)
        var = torch.einsum("bct,bt->bc", x * x, a) - mean**2
        pooled = torch.cat([mean, var.clamp(min=1e-6).sqrt()], 1)
        e = F.normalize(F.linear(pooled, self.embed, self.embed_b), dim=1)
        return SCALE * F.linear(e, F.normalize(self.prototypes, dim=1))
