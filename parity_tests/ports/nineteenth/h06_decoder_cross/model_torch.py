import math

import torch
from torch import nn
from torch.nn import functional as F

VOCAB, WIDTH, HEADS, LENGTH = 16, 16, 2, 8


def positions(length, width):
    angle = torch.arange(length, dtype=torch.float64)[:, None] / 10000 ** (
        torch.arange(0, width, 2, dtype=torch.float64) / width
    )
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, WIDTH)
        self.register_buffer("table", positions(LENGTH, WIDTH), persistent=False)

    def forward(self, tokens):
        x = self.embedding(tokens) * math.sqrt(WIDTH)
        return x + self.table.to(x.dtype)


class FeedForward(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(WIDTH, 32), nn.ReLU(), nn.Linear(32, WIDTH))


class EncoderLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.norm1 = nn.LayerNorm(WIDTH, eps=1e-6)
        self.ffn = FeedForward()
        self.norm2 = nn.LayerNorm(WIDTH, eps=1e-6)

    def forward(self, x, padding):
        a, _ = self.attention(x, x, x, key_padding_mask=padding, need_weights=False)
        x = self.norm1(x + a)
        return self.norm2(x + self.ffn(x))


class DecoderLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.self_attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.norm1 = nn.LayerNorm(WIDTH, eps=1e-6)
        self.cross_attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.norm2 = nn.LayerNorm(WIDTH, eps=1e-6)
        self.ffn = FeedForward()
        self.norm3 = nn.LayerNorm(WIDTH, eps=1e-6)

    def forward(self, x, memory):
        causal = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
        a, _ = self.self_attention(x, x, x, attn_mask=causal, need_weights=False)
        x = self.norm1(x + a)
        a, _ = self.cross_attention(x, memory, memory, need_weights=False)
        x = self.norm2(x + a)
        return self.norm3(x + self.ffn(x))


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = Tokens()
        self.encoder = EncoderLayer()
        self.decoder = DecoderLayer()
        self.logits = nn.Linear(WIDTH, VOCAB)
        self.logits.weight = self.tokens.embedding.weight

    def forward(self, source, target):
        padding = source == 0
        memory = self.encoder(self.tokens(source), padding)
        return self.logits(self.decoder(self.tokens(target), memory))


def masked_loss(output, target):
    target = target.long()
    losses = F.cross_entropy(output.flatten(0, 1), target.flatten(), reduction="none")
    mask = (target != 0).flatten().to(losses.dtype)
    return (losses * mask).mean()


class Adam(torch.optim.Optimizer):
    """Adam as in Keras, epsilon added to the uncorrected root."""

    def __init__(self, params, lr, betas, eps):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in (p for p in group["params"] if p.grad is not None):
                s = self.state[p]
                if len(s) == 0:
                    s.update(t=0, m=torch.zeros_like(p), v=torch.zeros_like(p))
                s["t"] += 1
                s["m"].mul_(b1).add_(p.grad, alpha=1 - b1)
                s["v"].mul_(b2).addcmul_(p.grad, p.grad, value=1 - b2)
                lr = group["lr"] * math.sqrt(1 - b2 ** s["t"]) / (1 - b1 ** s["t"])
                p.sub_(lr * s["m"] / (s["v"].sqrt() + group["eps"]))


def noam(step, width=WIDTH, warmup=8, factor=0.2):
    step = max(step, 1)
    return factor * width**-0.5 * min(step**-0.5, step * warmup**-1.5)


def adam(params):
    optimizer = Adam(params, lr=1.0, betas=(0.9, 0.98), eps=1e-8)
    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, noam)
