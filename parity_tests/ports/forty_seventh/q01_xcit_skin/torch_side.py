"""XCiT in PyTorch, sized for 32 pixel skin lesion crops."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


def sine_table(side, hidden=16, temperature=10000.0):
    pos = np.arange(1, side + 1) / (side + 1e-6) * 2 * math.pi
    angle = pos[:, None] / temperature ** (2 * (np.arange(hidden) // 2) / hidden)
    table = np.empty((side, hidden))
    table[:, 0::2] = np.sin(angle[:, 0::2])
    table[:, 1::2] = np.cos(angle[:, 1::2])
    grid = np.empty((2 * hidden, side, side), dtype=np.float32)
    grid[:hidden] = table.T[:, :, None]
    grid[hidden:] = table.T[:, None, :]
    return grid


class PositionalEncodingFourier(nn.Module):
    def __init__(self, side, dim):
        super().__init__()
        self.register_buffer("table", torch.from_numpy(sine_table(side)), persistent=False)
        self.token_projection = nn.Conv2d(self.table.shape[0], dim, 1)

    def forward(self, x):
        pos = self.token_projection(self.table[None].to(self.token_projection.weight.dtype))
        return x + pos.flatten(2).transpose(1, 2)


class XCA(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.temperature = nn.Parameter(torch.ones(heads, 1, 1))
        self.qkv = nn.Linear(dim, dim * 3)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        B, N, C = x.shape
        q, k, v = self.qkv(x).reshape(B, N, 3, self.heads, C // self.heads).permute(2, 0, 3, 4, 1)
        attn = (F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1)) * self.temperature
        x = attn.softmax(-1) @ v
        return self.proj(x.permute(0, 3, 1, 2).reshape(B, N, C))


class LPI(nn.Module):
    def __init__(self, dim, side):
        super().__init__()
        self.side = side
        self.conv1 = nn.Conv2d(dim, dim, 3, padding=1, groups=dim)
        self.bn = nn.BatchNorm2d(dim)
        self.conv2 = nn.Conv2d(dim, dim, 3, padding=1, groups=dim)

    def forward(self, x):
        y = x.transpose(1, 2).unflatten(2, (self.side, self.side))
        y = self.conv2(self.bn(F.silu(self.conv1(y))))
        return y.flatten(2).transpose(1, 2)


class Mlp(nn.Sequential):
    def __init__(self, dim, hidden):
        super().__init__(nn.Linear(dim, hidden), nn.SiLU(), nn.Linear(hidden, dim))


class XCABlock(nn.Module):
    def __init__(self, dim, heads, side, eta=0.5):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=1e-6)
        self.attn = XCA(dim, heads)
        self.norm2 = nn.LayerNorm(dim, eps=1e-6)
        self.mlp = Mlp(dim, 2 * dim)
        self.norm3 = nn.LayerNorm(dim, eps=1e-6)
        self.local_mp = LPI(dim, side)
        self.gamma1 = nn.Parameter(eta * torch.ones(dim))
        self.gamma2 = nn.Parameter(eta * torch.ones(dim))
        self.gamma3 = nn.Parameter(eta * torch.ones(dim))

    def forward(self, x):
        x = x + self.gamma1 * self.attn(self.norm1(x))
        x = x + self.gamma3 * self.local_mp(self.norm3(x))
        return x + self.gamma2 * self.mlp(self.norm2(x))


class ClassAttentionBlock(nn.Module):
    def __init__(self, dim, heads, eta=0.5):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(dim, eps=1e-6)
        self.q = nn.Linear(dim, dim)
        self.k = nn.Linear(dim, dim)
        self.v = nn.Linear(dim, dim)
        self.proj = nn.Linear(dim, dim)
        self.norm2 = nn.LayerNorm(dim, eps=1e-6)
        self.mlp = Mlp(dim, 2 * dim)
        self.gamma1 = nn.Parameter(eta * torch.ones(dim))
        self.gamma2 = nn.Parameter(eta * torch.ones(dim))

    def heads_first(self, t):
        return t.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, x):
        u = self.norm1(x)
        q, k, v = (self.heads_first(t) for t in (self.q(u[:, :1]), self.k(u), self.v(u)))
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        cls = x[:, :1] + self.gamma1 * self.proj(y)
        return cls + self.gamma2 * self.mlp(self.norm2(cls))


class XCiT(nn.Module):
    def __init__(self, size=32, dim=48, heads=4, depth=2, classes=7):
        super().__init__()
        self.patch_embed = nn.Sequential(
            nn.Conv2d(3, dim // 2, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(dim // 2),
            nn.SiLU(),
            nn.Conv2d(dim // 2, dim, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(dim),
        )
        self.pos_embeder = PositionalEncodingFourier(size // 4, dim)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        nn.init.trunc_normal_(self.cls_token, std=0.02)
        self.blocks = nn.ModuleList(XCABlock(dim, heads, size // 4) for _ in range(depth))
        self.cls_attn = ClassAttentionBlock(dim, heads)
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.head = nn.Linear(dim, classes)

    def forward(self, image):
        if image.shape[-1] == 3:  # as loaded, channels last
            image = image.permute(0, 3, 1, 2)
        x = self.patch_embed(image).flatten(2).transpose(1, 2)
        x = self.pos_embeder(x)
        for block in self.blocks:
            x = block(x)
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], dim=1)
        return self.head(self.norm(self.cls_attn(x).squeeze(1)))


def build():
    return XCiT()


class ClippedAdamW(torch.optim.Optimizer):
    """AdamW with the gradient clipped by its global norm, epsilon next to the raw second moment."""

    def __init__(self, params, lr, betas=(0.875, 0.984375), eps=1e-6, weight_decay=0.0, max_norm=1.0):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))
        self.max_norm = max_norm

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        grads = [p.grad for g in self.param_groups for p in g["params"] if p.grad is not None]
        total = torch.nn.utils.get_total_norm(grads)
        scale = (self.max_norm / total).clamp(max=1.0)
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["step"] = 0
                    state["exp_avg"] = torch.zeros_like(p)
                    state["exp_avg_sq"] = torch.zeros_like(p)
                state["step"] += 1
                t, g = state["step"], p.grad * scale
                m = state["exp_avg"].lerp_(g, 1 - b1)
                v = state["exp_avg_sq"].lerp_(g * g, 1 - b2)
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.addcdiv_(
                    m, v.sqrt().add_(group["eps"]), value=-group["lr"] * math.sqrt(1 - b2**t) / (1 - b1**t)
                )
        return loss


PEAK, START, WARMUP, DECAY, FLOOR = 2**-9, 2**-13, 8, 60, 2**-6


def lr_factor(step):
    if step < WARMUP:
        return (START + (PEAK - START) * step / WARMUP) / PEAK
    progress = min(step - WARMUP, DECAY) / DECAY
    return FLOOR + (1 - FLOOR) * 0.5 * (1 + math.cos(math.pi * progress))


def optimizer(params):
    params = list(params)
    decay = [p for p in params if p.ndim == 2 or p.ndim == 4]
    plain = [p for p in params if not (p.ndim == 2 or p.ndim == 4)]
    opt = ClippedAdamW(
        [{"params": decay, "weight_decay": 0.0625}, {"params": plain, "weight_decay": 0.0}], lr=PEAK
    )
    return opt, torch.optim.lr_scheduler.LambdaLR(opt, lr_factor)
