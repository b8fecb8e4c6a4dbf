"""Decoder-only event-code model with tied output projection."""

import math

import torch
import torch.nn.functional as F
from torch import nn

VOCAB, LENGTH, DIM, HEADS, DEPTH = 32, 16, 24, 3, 2
WARMUP, TOTAL, PEAK = 8, 60, 4e-3


def sinusoids(length, dim, like):
    pos = torch.arange(length, dtype=like.dtype, device=like.device)
    power = torch.arange(0, dim, 2, dtype=like.dtype, device=like.device) / dim
    angle = pos[:, None] / 10000.0**power
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1)


class Block(nn.Module):
    """Pre-norm block: masked self-attention, then a two-layer MLP."""

    def __init__(self):
        super().__init__()
        self.norm_a = nn.LayerNorm(DIM, eps=1e-5)
        self.query = nn.Linear(DIM, DIM)
        self.key = nn.Linear(DIM, DIM)
        self.value = nn.Linear(DIM, DIM)
        self.out = nn.Linear(DIM, DIM)
        self.norm_f = nn.LayerNorm(DIM, eps=1e-5)
        self.expand = nn.Linear(DIM, 2 * DIM)
        self.reduce = nn.Linear(2 * DIM, DIM)

    def attend(self, x, allowed):
        q, k, v = (
            layer(x).unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
        return self.out(mixed.transpose(1, 2).flatten(2))

    def forward(self, x, allowed):
        x = x + self.attend(self.norm_a(x), allowed)
        return x + self.reduce(F.gelu(self.expand(self.norm_f(x))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCAB, DIM)
        self.blocks = nn.ModuleList(Block() for _ in range(DEPTH))
        self.norm_out = nn.LayerNorm(DIM, eps=1e-5)

    def attention_mask(self, tokens):
        """True where attention is allowed; every position may see itself."""
        steps = torch.arange(tokens.shape[1], device=tokens.device)
        causal = steps[None, :] <= steps[:, None]
        valid = tokens.ne(0)
        allowed = causal & valid[:, None, :, None]
        return allowed | (steps[None, :] == steps[:, None])

    def forward(self, tokens):
        x = self.tokens(tokens) * math.sqrt(DIM)
        x = x + sinusoids(tokens.shape[1], DIM, x)
        allowed = self.attention_mask(tokens)
        for block in self.blocks:
            x = block(x, allowed)
        return F.linear(self.norm_out(x), self.tokens.weight)


def loss(outputs, targets):
    """Cross entropy over targets that are not padding."""
    return F.cross_entropy(outputs.flatten(0, 1), targets.flatten().long(), ignore_index=0)


class Adam(torch.optim.Optimizer):
    """Adam with epsilon added to the uncorrected second moment (TF placement)."""

    def __init__(self, params, lr, betas=(0.9, 0.98), eps=1e-7):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                s = self.state[p]
                if not s:
                    s.update(t=0, m=torch.zeros_like(p), v=torch.zeros_like(p))
                s["t"] += 1
                s["m"].lerp_(p.grad, 1 - b1)
                s["v"].lerp_(p.grad.square(), 1 - b2)
                rate = group["lr"] * math.sqrt(1 - b2 ** s["t"]) / (1 - b1 ** s["t"])
                p.sub_(rate * s["m"] / (s["v"].sqrt() + group["eps"]))


def make_optimizer(model):
    optimizer = Adam(model.parameters(), lr=PEAK)

    def factor(n):
        return min(n / WARMUP, (TOTAL - n) / (TOTAL - WARMUP))

    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
