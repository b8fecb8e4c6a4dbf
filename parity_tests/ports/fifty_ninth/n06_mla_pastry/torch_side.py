import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


class MLA(nn.Module):
    """Latent attention with the expansion of keys and values absorbed into queries and outputs, so that scores
    and sums are taken among the latents themselves."""

    def __init__(self, d, heads, nope, rope, value, q_rank, kv_rank):
        super().__init__()
        self.sizes = nope, rope
        self.w_o = nn.Parameter(torch.empty(heads, value, d))
        self.w_uv = nn.Parameter(torch.empty(heads, value, kv_rank))
        self.w_uk = nn.Parameter(torch.empty(heads, nope, kv_rank))
        self.w_qr = nn.Parameter(torch.empty(heads, rope, q_rank))
        self.w_qn = nn.Parameter(torch.empty(heads, nope, q_rank))
        self.to_latent = nn.Linear(d, kv_rank, bias=False)
        self.to_key = nn.Linear(d, rope, bias=False)
        self.to_query = nn.Linear(d, q_rank, bias=False)
        self.latent_norm = nn.RMSNorm(kv_rank, eps=1e-6)
        self.query_norm = nn.RMSNorm(q_rank, eps=1e-6)
        for w in (self.w_o, self.w_uv, self.w_uk, self.w_qr, self.w_qn):
            nn.init.normal_(w, std=w.shape[-1] ** -0.5)

    @staticmethod
    def turn(x, phase):
        z = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
        return torch.view_as_real(z * phase).flatten(-2)

    def forward(self, x, phase, future):
        nope, rope = self.sizes
        q = self.query_norm(self.to_query(x))
        c = self.latent_norm(self.to_latent(x))
        q_lat = torch.einsum("bqr,hnr,hnc->bhqc", q, self.w_qn, self.w_uk)
        q_rot = self.turn(torch.einsum("bqr,her->bhqe", q, self.w_qr), phase)
        k_rot = self.turn(self.to_key(x), phase)
        score = torch.einsum("bhqc,bkc->bhqk", q_lat, c) + torch.einsum("bhqe,bke->bhqk", q_rot, k_rot)
        score = (score * (nope + rope) ** -0.5).masked_fill(future, -torch.inf)
        mixed = torch.einsum("bhqk,bkc->bhqc", score.softmax(-1), c)
        return torch.einsum("bhqc,hvc,hvd->bqd", mixed, self.w_uv, self.w_o)


class Gated(nn.Module):
    def __init__(self, d, inner):
        super().__init__()
        self.back = nn.Linear(inner, d, bias=False)
        self.both = nn.Linear(d, 2 * inner, bias=False)

    def forward(self, x):
        value, gate = self.both(x).chunk(2, -1)
        return self.back(value * F.silu(gate))


class Layer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.mlp = nn.ModuleList([nn.RMSNorm(d, eps=1e-6), Gated(d, 32)])
        self.mix = nn.ModuleList([nn.RMSNorm(d, eps=1e-6), MLA(d, 3, 8, 4, 6, 14, 10)])

    def forward(self, x, *tables):
        x = x + self.mix[1](self.mix[0](x), *tables)
        return x + self.mlp[1](self.mlp[0](x))


class Decoder(nn.Module):
    def __init__(self, vocab=40, d=24, depth=3, rope=4, length=18):
        super().__init__()
        angle = np.outer(np.arange(length), 100.0 ** (-np.arange(0, rope, 2) / rope))
        self.register_buffer(
            "turns",
            torch.from_numpy(np.stack([np.cos(angle), np.sin(angle)], -1).astype(np.float32)),
            persistent=False,
        )
        self.final = nn.RMSNorm(d, eps=1e-6)
        self.stack = nn.ModuleList(Layer(d) for _ in range(depth))
        self.table = nn.Parameter(torch.randn(vocab, d) * 0.02)

    def forward(self, tokens):
        n, d = tokens.size(1), self.table.size(1)
        phase = torch.view_as_complex(self.turns[:n])
        future = torch.ones(n, n, dtype=torch.bool, device=tokens.device).triu(1)
        x = F.embedding(tokens.long(), self.table) * math.sqrt(d)
        for layer in self.stack:
            x = layer(x, phase, future)
        return self.final(x) @ self.table.t() / math.sqrt(d)


def loss(outputs, targets):
    targets = targets.long()
    log_z = outputs.logsumexp(-1)
    nll = F.cross_entropy(outputs.transpose(1, 2), targets, ignore_index=0, reduction="none")
    real = targets.ne(0)
    per_word = nll + (1e-2 * log_z.square()).masked_fill(~real, 0.0)
    return (per_word.sum(1) / real.sum(1)).mean()


class ClippedAdamW(torch.optim.Optimizer):
    """Adam with decoupled decay of matrices; the norm of all gradients is clipped first, and epsilon is added to
    the root of the raw second moment, as in the paper's efficient form."""

    def __init__(self, params, lr, betas=(0.9, 0.95), eps=1e-7, decay=0.1, max_norm=0.12):
        params = list(params)
        groups = [
            {"params": [p for p in params if p.ndim > 1], "decay": decay},
            {"params": [p for p in params if p.ndim == 1], "decay": 0.0},
        ]
        self.max_norm = max_norm
        super().__init__(groups, dict(lr=lr, betas=betas, eps=eps, decay=decay))

    @torch.no_grad()
    def step(self, closure=None):
        value = None
        if closure is not None:
            with torch.enable_grad():
                value = closure()
        grads = [p.grad for group in self.param_groups for p in group["params"] if p.grad is not None]
        norm = torch.linalg.vector_norm(torch.stack([g.norm() for g in grads]))
        shrink = self.max_norm / norm.clamp(min=self.max_norm)
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state.update(t=0, m=torch.zeros_like(p), v=torch.zeros_like(p))
                state["t"] += 1
                g = p.grad * shrink
                p.mul_(1 - group["lr"] * group["decay"])
                state["m"].lerp_(g, 1 - b1)
                state["v"].mul_(b2).addcmul_(g, g, value=1 - b2)
                pace = group["lr"] * math.sqrt(1 - b2 ** state["t"]) / (1 - b1 ** state["t"])
                p.addcdiv_(state["m"], state["v"].sqrt() + group["eps"], value=-pace)
        return value


def optimizer(params):
    def pace(i, warm=6, hold=20, end=60):
        if i < hold:
            return min((i + 1) / warm, 1.0)
        return 1.0 - math.sqrt(min((i - hold) / (end - hold), 1.0))

    opt = ClippedAdamW(params, lr=4e-3)
    return opt, torch.optim.lr_scheduler.LambdaLR(opt, pace)


def build():
    return Decoder()
