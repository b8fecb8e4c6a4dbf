import math

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln1 = nn.LayerNorm(width, eps=1e-3)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.LayerNorm(width, eps=1e-3), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x, bias):
        n, l, w = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(n, l, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        x = x + self.out(a.transpose(1, 2).reshape(n, l, w))
        return x + self.mlp(x)


class ProteinLM(nn.Module):
    def __init__(self, vocab=24, length=20, width=16, heads=4, depth=2):
        super().__init__()
        self.tok = nn.Embedding(vocab, width)
        self.pos = nn.Parameter(torch.randn(length, width) * 0.02)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.ln_f = nn.LayerNorm(width, eps=1e-3)
        self.head = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width, eps=1e-3))
        self.decoder = nn.Linear(width, vocab)
        self.decoder.weight = self.tok.weight

    def forward(self, ids):
        ids = ids.long()
        keep = (ids != 0)[:, None, None, :]
        x = self.tok(ids) * math.sqrt(self.tok.embedding_dim) + self.pos
        for block in self.blocks:
            x = block(x, keep)
        return self.decoder(self.head(self.ln_f(x)))


def build():
    return ProteinLM()


def masked_loss(logits, labels):
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten().long(), ignore_index=-100)


class KerasAdamW(torch.optim.Optimizer):
    """AdamW with epsilon where Keras has it: beside the uncorrected second moment."""

    def __init__(self, params, lr, betas=(0.9, 0.999), eps=1e-7, weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                s = self.state[p]
                if not s:
                    s["step"], s["m"], s["v"] = 0, torch.zeros_like(p), torch.zeros_like(p)
                s["step"] += 1
                t = s["step"]
                p.mul_(1 - group["lr"] * group["weight_decay"])
                s["m"].lerp_(p.grad, 1 - b1)
                s["v"].mul_(b2).addcmul_(p.grad, p.grad, value=1 - b2)
                rate = group["lr"] * math.sqrt(1 - b2**t) / (1 - b1**t)
                p.addcdiv_(s["m"], s["v"].sqrt().add_(group["eps"]), value=-rate)


def optimizer(parameters):
    parameters = [p for p in parameters if p.requires_grad]
    matrices = [p for p in parameters if p.ndim > 1]
    vectors = [p for p in parameters if p.ndim <= 1]
    return KerasAdamW(
        [{"params": matrices, "weight_decay": 0.02}, {"params": vectors}], lr=2e-3, betas=(0.9, 0.98)
    )
