import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

N, VIEWS, DETECTORS = 16, 12, 20


def system_matrix():
    mid = (N - 1) / 2
    r, c = np.divmod(np.arange(N * N), N)
    a = np.zeros((VIEWS * DETECTORS, N * N))
    for view in range(VIEWS):
        angle = np.pi * view / VIEWS
        s = ((c - mid) * np.cos(angle) + (mid - r) * np.sin(angle)) * 0.85 + (DETECTORS - 1) / 2
        k = np.floor(s).astype(int)
        np.add.at(a, (view * DETECTORS + k, np.arange(N * N)), 1 - (s - k))
        np.add.at(a, (view * DETECTORS + k + 1, np.arange(N * N)), s - k)
    return torch.from_numpy((a / 14.0).astype(np.float32)).view(VIEWS, DETECTORS, N, N)


def unit(cin, memory, width=8):
    return nn.Sequential(
        nn.Conv2d(cin, width, 3, padding=1),
        nn.PReLU(width),
        nn.Conv2d(width, memory, 3, padding=1),
    )


class LPD(nn.Module):
    def __init__(self, n_iter=3, memory=4):
        super().__init__()
        self.memory = memory
        self.primal_nets = nn.ModuleList(unit(memory + 1, memory) for _ in range(n_iter))
        self.dual_nets = nn.ModuleList(unit(memory + 2, memory) for _ in range(n_iter))
        self.register_buffer("A", system_matrix(), persistent=False)

    def fwd(self, f):
        return torch.einsum("vdrc,bkrc->bkvd", self.A, f)

    def adj(self, h):
        return torch.einsum("vdrc,bkvd->bkrc", self.A, h)

    def forward(self, g):
        g = g[:, None]
        h = g.new_zeros(len(g), self.memory, VIEWS, DETECTORS)
        f = g.new_zeros(len(g), self.memory, N, N)
        for net_h, net_f in zip(self.dual_nets, self.primal_nets):
            h = h + net_h(torch.cat((h, self.fwd(f[:, 1:2]), g), 1))
            f = f + net_f(torch.cat((f, self.adj(h[:, 0:1])), 1))
        return f[:, 0]


def disc(device, dtype):
    t = torch.arange(N, device=device, dtype=dtype) - (N - 1) / 2
    return (t[:, None] ** 2 + t[None] ** 2 <= (N / 2) ** 2).to(dtype)


def loss(outputs, targets):
    inside = disc(outputs.device, outputs.dtype)
    data = F.mse_loss(outputs * inside, targets * inside, reduction="sum") / (inside.sum() * len(outputs))
    tv = sum(outputs.diff(dim=d).abs().mean() for d in (1, 2))
    return torch.add(data, tv, alpha=0.02)


def build():
    model = LPD()
    for m in model.modules():
        if isinstance(m, nn.Conv2d):
            nn.init.xavier_uniform_(m.weight)
            nn.init.zeros_(m.bias)
    return model
