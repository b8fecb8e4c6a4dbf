import math

import torch
from torch import nn
from torch.nn import functional as F


class GEGLU(nn.Module):
    def __init__(self, dim, p):
        super().__init__()
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.w_in = nn.Linear(dim, dim * 4)
        self.w_out = nn.Linear(dim * 2, dim)
        self.p = p

    def forward(self, x):
        a, b = self.w_in(self.norm(x)).chunk(2, dim=-1)
        return self.w_out(F.dropout(a * F.gelu(b), self.p, self.training))


class Net(nn.Module):
    def __init__(self, size=8, num_latents=12, dim=32, heads=2, bands=4, depth=2, num_classes=10):
        super().__init__()
        self.depth = depth
        channels = 1 + 2 + 4 * bands

        # Positions are no parameters. Kept in double, cast where they are used.
        lin = torch.linspace(-1, 1, size, dtype=torch.float64)
        pos = torch.cartesian_prod(lin, lin)
        freq = torch.linspace(1.0, size / 2, bands, dtype=torch.float64) * math.pi
        ang = pos.unsqueeze(-1) * freq
        enc = torch.cat((pos, torch.cat((ang.sin(), ang.cos()), dim=-1).flatten(1)), dim=1)
        self.register_buffer("pos", enc, persistent=False)

        self.latents = nn.Parameter(torch.empty(num_latents, dim))
        nn.init.trunc_normal_(self.latents, std=0.3)
        self.norm_data = nn.LayerNorm(channels, eps=1e-6)
        self.norm_cross = nn.LayerNorm(dim, eps=1e-6)
        self.cross = nn.MultiheadAttention(
            dim, heads, kdim=channels, vdim=channels, bias=False, batch_first=True
        )
        self.cross_ff = GEGLU(dim, 0.1)
        self.norm_latent = nn.LayerNorm(dim, eps=1e-6)
        self.attend = nn.MultiheadAttention(dim, heads, bias=False, batch_first=True)
        self.latent_ff = GEGLU(dim, 0.1)
        self.head = nn.Sequential(nn.LayerNorm(dim, eps=1e-6), nn.Linear(dim, num_classes))

    def forward(self, x):
        b = x.size(0)
        data = x.flatten(2).transpose(1, 2)
        data = self.norm_data(torch.cat((data, self.pos.to(x.dtype).expand(b, -1, -1)), dim=-1))
        z = self.latents.expand(b, -1, -1)
        for _ in range(self.depth):
            z = z + self.cross(self.norm_cross(z), data, data, need_weights=False)[0]
            z = z + self.cross_ff(z)
            n = self.norm_latent(z)
            z = z + self.attend(n, n, n, need_weights=False)[0]
            z = z + self.latent_ff(z)
        return self.head(z.mean(dim=1))
