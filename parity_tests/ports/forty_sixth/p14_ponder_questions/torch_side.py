"""Universal Transformer with ACT for question classification."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


def sinusoid(n, d):
    freq = np.exp(-np.log(1e4) * np.arange(d // 2) / (d // 2 - 1))
    phase = np.outer(np.arange(n), freq)
    table = np.hstack([np.sin(phase), np.cos(phase)]).astype(np.float32)
    return torch.from_numpy(table)


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.mha = nn.MultiheadAttention(d, heads, batch_first=True)
        self.ffn = nn.Sequential(nn.Linear(d, 2 * d), nn.SiLU(), nn.Linear(2 * d, d))
        self.ln_attn = nn.LayerNorm(d, eps=1e-6)
        self.ln_ffn = nn.LayerNorm(d, eps=1e-6)

    def forward(self, x, pad):
        a, _ = self.mha(x, x, x, key_padding_mask=pad, need_weights=False)
        x = self.ln_attn(x + a)
        return self.ln_ffn(x + self.ffn(x))


class UniversalTransformer(nn.Module):
    def __init__(self, vocab=120, d=32, heads=2, max_len=16, max_steps=5, classes=6, threshold=0.99):
        super().__init__()
        self.scale, self.threshold, self.max_steps = math.sqrt(d), threshold, max_steps
        self.tok = nn.Embedding(vocab, d)
        self.p_halt = nn.Linear(d, 1)
        nn.init.constant_(self.p_halt.bias, 0.5)
        self.block = Block(d, heads)
        self.head = nn.Linear(d, classes)
        coordinates = sinusoid(max_len, d) + sinusoid(max_steps, d)[:, None]
        self.register_buffer("coordinates", coordinates.to(torch.get_default_dtype()), persistent=False)

    def forward(self, tokens):
        pad = tokens == 0
        x = self.tok(tokens.long()) * self.scale
        out = torch.zeros_like(x)
        total = pad.to(x.dtype)  # padding has halted from the start
        rest, n_updates = torch.zeros_like(total), torch.zeros_like(total)
        active = ~pad
        for t in range(self.max_steps):
            if not active.any():
                break
            x = x + self.coordinates[t]
            p = self.p_halt(x).squeeze(-1)
            p = p.sigmoid()
            ends = active & (total + p > self.threshold)
            left = 1 - total
            weight = torch.where(ends, left, torch.where(active, p, 0.0))
            rest = torch.where(ends, left, rest)
            n_updates = n_updates + active
            total = total + weight
            active = active & ~ends
            x = self.block(x, pad)
            out = torch.lerp(out, x, weight.unsqueeze(-1))
        n = (~pad).sum(1, keepdim=True)
        pooled = out.masked_fill(pad.unsqueeze(-1), 0.0).sum(1) / n
        ponder = (n_updates + rest).masked_fill(pad, 0.0).sum(1, keepdim=True) / n
        return self.head(pooled), ponder


def build():
    return UniversalTransformer()


def step(model, batch, tau=0.02):
    tokens, labels = batch
    logits, ponder = model(tokens)
    return F.cross_entropy(logits, labels.long().view(-1)) + tau * ponder.mean()


def optimizer(parameters):
    opt = torch.optim.Adagrad(parameters, lr=0.02, initial_accumulator_value=0.1, eps=1e-12)
    return opt, torch.optim.lr_scheduler.StepLR(opt, step_size=15, gamma=0.5)
