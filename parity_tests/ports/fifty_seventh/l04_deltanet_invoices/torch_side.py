"""DeltaNet over invoice lines, all positions of a line at once (PyTorch)."""

import torch
import torch.nn as nn
import torch.nn.functional as F


def l2norm(x, eps=1e-6):
    return x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True) + eps)


def delta_rule(q, k, v, beta):
    """q, k, v: (B, H, T, D), beta: (B, H, T).

    The writes u solve (I + strict lower triangle of the keys' products) u = beta v,
    which spares the loop over positions.
    """
    t = q.shape[-2]
    products = torch.tril(k @ k.mT, diagonal=-1) * beta.unsqueeze(-2)
    system = products + torch.eye(t, dtype=q.dtype, device=q.device)
    u = torch.linalg.solve_triangular(system, beta.unsqueeze(-1) * v, upper=False, unitriangular=True)
    return torch.tril(q @ k.mT) @ u


class DeltaMixer(nn.Module):
    def __init__(self, dim, heads, head_dim, kernel=3):
        super().__init__()
        inner = heads * head_dim
        self.heads = heads
        self.norm = nn.RMSNorm(dim, eps=1e-5)
        self.q_proj = nn.Linear(dim, inner, bias=False)
        self.kv_proj = nn.Linear(dim, 2 * inner, bias=False)
        self.kv_conv = nn.Conv1d(
            2 * inner, 2 * inner, kernel, groups=2 * inner, padding=kernel - 1, bias=False
        )
        self.b_proj = nn.Linear(dim, heads)
        self.g_proj = nn.Linear(dim, inner)
        self.o_norm = nn.RMSNorm(head_dim, eps=1e-5)
        self.o_proj = nn.Linear(inner, dim, bias=False)

    def forward(self, x):
        b, t, _ = x.shape
        h = self.norm(x)
        kv = self.kv_conv(self.kv_proj(h).mT)[..., :t]
        k, v = F.silu(kv).view(b, 2, self.heads, -1, t).mT.unbind(1)
        q = F.silu(self.q_proj(h)).view(b, t, self.heads, -1).transpose(1, 2)
        beta = torch.sigmoid(self.b_proj(h)).mT
        o = delta_rule(l2norm(q), l2norm(k), v, beta)
        o = self.o_norm(o).transpose(1, 2).flatten(2)
        return x + self.o_proj(o * F.silu(self.g_proj(h)))


class SwiGLU(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.norm = nn.RMSNorm(dim, eps=1e-5)
        self.w_in = nn.Linear(dim, 2 * hidden, bias=False)
        self.w_out = nn.Linear(hidden, dim, bias=False)

    def forward(self, x):
        gate, up = self.w_in(self.norm(x)).chunk(2, dim=-1)
        return x + self.w_out(F.silu(gate) * up)


class InvoiceLM(nn.Module):
    def __init__(self, vocab=40, dim=24, depth=2):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.layers = nn.Sequential()
        for _ in range(depth):
            self.layers.append(DeltaMixer(dim, heads=2, head_dim=8))
            self.layers.append(SwiGLU(dim, 40))
        self.norm = nn.RMSNorm(dim, eps=1e-5)

    def forward(self, tokens):
        x = self.layers(self.emb(tokens.long()))
        return F.linear(self.norm(x), self.emb.weight)


def loss(outputs, targets):
    targets = targets.long()
    ce = F.cross_entropy(outputs.mT, targets, ignore_index=0, reduction="none")
    lengths = (targets != 0).sum(1)
    return (ce.sum(1) / lengths).mean()


def build():
    return InvoiceLM()
