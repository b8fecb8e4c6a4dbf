import torch
import torch.nn as nn
import torch.nn.functional as F


class FocalModulation(nn.Module):
    def __init__(self, dim, focal_window=3, focal_level=2, focal_factor=2):
        super().__init__()
        self.dim = dim
        self.focal_level = focal_level
        self.f = nn.Linear(dim, 2 * dim + focal_level + 1)
        self.h = nn.Conv2d(dim, dim, 1)
        self.proj = nn.Linear(dim, dim)
        self.ln = nn.LayerNorm(dim)
        self.focal_layers = nn.ModuleList()
        for k in range(focal_level):
            size = focal_factor * k + focal_window
            self.focal_layers.append(
                nn.Sequential(nn.Conv2d(dim, dim, size, padding=size // 2, groups=dim, bias=False), nn.SiLU())
            )

    def forward(self, x):
        c = self.dim
        x = self.f(x).permute(0, 3, 1, 2)
        q, ctx, gates = x.split((c, c, self.focal_level + 1), 1)
        ctx_all = torch.zeros_like(ctx)
        for l, layer in enumerate(self.focal_layers):
            ctx = layer(ctx)
            ctx_all = ctx_all + ctx * gates[:, l : l + 1]
        ctx_global = F.silu(F.adaptive_avg_pool2d(ctx, 1))
        ctx_all = ctx_all + ctx_global * gates[:, self.focal_level :]
        ctx_all = ctx_all / (self.focal_level + 1)
        x = q * self.h(ctx_all)
        return self.proj(self.ln(x.permute(0, 2, 3, 1)))


class Mlp(nn.Sequential):
    def __init__(self, dim, hidden):
        super().__init__(nn.Linear(dim, hidden), nn.SiLU(), nn.Linear(hidden, dim))


class FocalNetBlock(nn.Module):
    def __init__(self, dim, mlp_ratio=2, layerscale_value=0.5):
        super().__init__()
        self.gamma_1 = nn.Parameter(torch.full((dim,), layerscale_value))
        self.gamma_2 = nn.Parameter(torch.full((dim,), layerscale_value))
        self.norm1 = nn.LayerNorm(dim)
        self.modulation = FocalModulation(dim)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = Mlp(dim, mlp_ratio * dim)

    def forward(self, x):
        x = torch.addcmul(x, self.gamma_1, self.modulation(self.norm1(x)))
        return torch.addcmul(x, self.gamma_2, self.mlp(self.norm2(x)))


class PatchEmbed(nn.Module):
    def __init__(self, in_chans, dim, patch):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.proj = nn.Conv2d(in_chans, dim, patch, patch)

    def forward(self, x):
        return self.norm(self.proj(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1))


class FocalNet(nn.Module):
    """Channels last between the blocks; only the depth-wise part runs channels first."""

    def __init__(self, num_classes=7, dims=(24, 40), depths=(2, 2)):
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.5, 0.4375, 0.40625]), persistent=False)
        self.register_buffer("std", torch.tensor([0.25, 0.25, 0.25]), persistent=False)
        stages, previous = [], 3
        for i, (dim, depth) in enumerate(zip(dims, depths)):
            embed = PatchEmbed(previous, dim, 4 if i == 0 else 2)
            stages.append(nn.Sequential(embed, *(FocalNetBlock(dim) for _ in range(depth))))
            previous = dim
        self.stages = nn.Sequential(*stages)
        self.norm = nn.LayerNorm(previous)
        self.head = nn.Linear(previous, num_classes)

    def forward(self, image):
        x = (image - self.mean) / self.std
        x = self.norm(self.stages(x))
        return self.head(x.mean((1, 2)))


def build():
    return FocalNet()
