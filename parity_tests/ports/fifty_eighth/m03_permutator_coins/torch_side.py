import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.lr_scheduler import LambdaLR


class PermuteMLP(nn.Module):
    """Channels-first permute-MLP; the channel is (segment, n) and a mixed vector is (row, n) or (column, n)."""

    def __init__(self, dim, side):
        super().__init__()
        self.segments = side
        self.channel = nn.Conv2d(dim, dim, 1, bias=False)
        self.rows = nn.Linear(dim, dim, bias=False)
        self.columns = nn.Linear(dim, dim, bias=False)
        self.squeeze = nn.Linear(dim, dim // 2)
        self.excite = nn.Linear(dim // 2, 3 * dim)
        self.proj = nn.Conv2d(dim, dim, 1)

    def forward(self, x):
        b, c, h, w = x.shape
        s, n = self.segments, c // self.segments
        parts = x.view(b, s, n, h, w)
        rows = self.rows(parts.permute(0, 1, 4, 3, 2).flatten(3))  # b s w (h n)
        rows = rows.view(b, s, w, h, n).permute(0, 1, 4, 3, 2).reshape(b, c, h, w)
        cols = self.columns(parts.permute(0, 1, 3, 4, 2).flatten(3))  # b s h (w n)
        cols = cols.view(b, s, h, w, n).permute(0, 1, 4, 2, 3).reshape(b, c, h, w)
        branches = torch.stack([rows, cols, self.channel(x)], dim=2)  # b c 3 h w
        weigh = self.excite(F.gelu(self.squeeze(branches.sum(2).mean((2, 3)))))
        weigh = weigh.view(b, c, 3).softmax(-1)
        return self.proj(torch.einsum("bckhw,bck->bchw", branches, weigh))


class ChannelNorm(nn.LayerNorm):
    def forward(self, x):
        return super().forward(x.movedim(1, -1)).movedim(-1, 1)


class Block(nn.Module):
    def __init__(self, dim, side):
        super().__init__()
        self.mixer = nn.Sequential(ChannelNorm(dim, eps=1e-6), PermuteMLP(dim, side))
        self.mlp = nn.Sequential(
            ChannelNorm(dim, eps=1e-6), nn.Conv2d(dim, 2 * dim, 1), nn.GELU(), nn.Conv2d(2 * dim, dim, 1)
        )

    def forward(self, x):
        x = x + self.mixer(x)
        return x + self.mlp(x)


class Permutator(nn.Module):
    def __init__(self, depths=(1, 2), dims=(12, 18), mints=5):
        super().__init__()
        layers = [nn.Conv2d(3, dims[0], 4, 4)]
        for i, (depth, dim) in enumerate(zip(depths, dims)):
            if i:
                layers.append(nn.Conv2d(dims[i - 1], dim, 2, 2))
            layers += [Block(dim, 6 >> i) for _ in range(depth)]
        self.body = nn.ModuleList(layers)
        self.norm = nn.LayerNorm(dims[-1], eps=1e-6)
        self.classify = nn.Linear(dims[-1], mints)

    def forward(self, image):
        x = image.movedim(-1, 1)
        for layer in self.body:
            x = layer(x)
        return self.classify(self.norm(x.flatten(2).mT).mean(1))


def build():
    return Permutator()


class AdamW(torch.optim.Optimizer):
    """AdamW with the epsilon beside the uncorrected root, as Keras has it."""

    def __init__(self, params, lr, betas=(0.9, 0.98), eps=1e-7, weight_decay=0.05):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None):
        loss = closure() if closure is not None else None
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state.update(step=0, m=torch.zeros_like(p), v=torch.zeros_like(p))
                state["step"] += 1
                t = state["step"]
                p.mul_(1 - group["lr"] * group["weight_decay"])
                state["m"].lerp_(p.grad, 1 - b1)
                state["v"].mul_(b2).addcmul_(p.grad, p.grad, value=1 - b2)
                rate = group["lr"] * math.sqrt(1 - b2**t) / (1 - b1**t)
                p.addcdiv_(state["m"], state["v"].sqrt().add_(group["eps"]), value=-rate)
        return loss


def optimizer(params, peak=4e-3, warm=8, total=60, rate_decay=0.6):
    """Groups by depth and by decay. The parameters come in the order of the model: body, norm, head.

    The body has five entries: stem, one block, the down-sampling, two blocks.
    """
    params = list(params)
    block = 17  # parameters of a Block
    spans = [(2, 0), (block, 1), (2, 1), (block, 2), (block, 3), (4, 4)]
    groups, start = [], 0
    for length, depth in spans:
        lr = peak * rate_decay ** (4 - depth)
        members = params[start : start + length]
        groups.append({"params": [p for p in members if p.ndim > 1], "lr": lr, "weight_decay": 0.05})
        groups.append({"params": [p for p in members if p.ndim < 2], "lr": lr, "weight_decay": 0.0})
        start += length
    assert start == len(params)
    opt = AdamW(groups, peak)

    def shape(step):
        if step < warm:
            return (step + 1) / warm
        return 0.5 * (1 + math.cos(math.pi * (step - warm) / (total - warm)))

    return opt, LambdaLR(opt, shape)
