import torch
import torch.nn as nn


class WindowAttention(nn.Module):
    def __init__(self, dim=12, heads=3, side=8, win=4, shift=0):
        super().__init__()
        self.heads, self.side, self.win, self.shift = heads, side, win, shift
        self.scale = dim**-0.5
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.table = nn.Parameter(torch.empty((2 * win - 1) ** 2, heads))
        nn.init.trunc_normal_(self.table, std=0.2)
        c = torch.cartesian_prod(torch.arange(win), torch.arange(win))
        d = c[:, None] - c[None] + win - 1
        self.register_buffer("index", d[..., 0] * (2 * win - 1) + d[..., 1], persistent=False)
        if shift:
            band = torch.zeros(side, dtype=torch.long)
            band[-win:-shift], band[-shift:] = 1, 2
            region = self.windows((3 * band[:, None] + band)[None, ..., None])[0, :, :, 0]
            self.register_buffer("blocked", region[:, :, None] != region[:, None, :], persistent=False)

    def windows(self, x):
        n = self.side // self.win
        x = x.view(len(x), n, self.win, n, self.win, -1).transpose(2, 3)
        return x.reshape(len(x), n * n, self.win**2, -1)

    def forward(self, x):  # (batch, side, side, dim)
        B, H, W, D = x.shape
        if self.shift:
            x = x.roll((-self.shift, -self.shift), (1, 2))
        w = self.windows(x)
        q, k, v = self.qkv(w).unflatten(-1, (3, self.heads, -1)).permute(3, 0, 1, 4, 2, 5)
        s = (q * self.scale) @ k.mT + self.table[self.index].permute(2, 0, 1)
        if self.shift:
            s = s.masked_fill(self.blocked[:, None], float("-inf"))
        y = (s.softmax(-1) @ v).transpose(2, 3).reshape(w.shape)
        n = self.side // self.win
        y = self.proj(y).view(B, n, n, self.win, self.win, D).transpose(2, 3).reshape(B, H, W, D)
        return y.roll((self.shift, self.shift), (1, 2)) if self.shift else y


class SwinBlock(nn.Module):
    def __init__(self, dim, shift):
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(dim), WindowAttention(dim, shift=shift)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.SiLU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class StormSwin(nn.Module):
    def __init__(self, dim=12):
        super().__init__()
        self.embed = nn.Conv2d(1, dim, 2, stride=2)
        self.blocks = nn.Sequential(SwinBlock(dim, 0), SwinBlock(dim, 2))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, 4)

    def forward(self, x):  # (batch, 16, 16)
        h = self.embed(x.unsqueeze(1)).permute(0, 2, 3, 1)
        return self.head(self.norm(self.blocks(h)).mean((1, 2)))


class AdamWTF(torch.optim.Optimizer):
    """AdamW with epsilon where Keras has it (added to the root of the uncorrected second moment)."""

    def __init__(self, params, lr, weight_decay=0.0, betas=(0.9, 0.999), eps=1e-7):
        super().__init__(params, dict(lr=lr, weight_decay=weight_decay, betas=betas, eps=eps))

    @torch.no_grad()
    def step(self, closure=None):
        for g in self.param_groups:
            b1, b2 = g["betas"]
            for p in g["params"]:
                if p.grad is None:
                    continue
                s = self.state[p]
                if not s:
                    s.update(step=0, m=torch.zeros_like(p), v=torch.zeros_like(p))
                s["step"] += 1
                s["m"].lerp_(p.grad, 1 - b1)
                s["v"].lerp_(p.grad**2, 1 - b2)
                p.mul_(1 - g["lr"] * g["weight_decay"])
                rate = g["lr"] * (1 - b2 ** s["step"]) ** 0.5 / (1 - b1 ** s["step"])
                p.addcdiv_(s["m"], s["v"].sqrt() + g["eps"], value=-rate)


def optimizer(params):
    params = list(params)
    groups = [
        {"params": [p for p in params if p.ndim > 1], "weight_decay": 0.1},
        {"params": [p for p in params if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return AdamWTF(groups, lr=2.0**-8)


def build():
    return StormSwin()
