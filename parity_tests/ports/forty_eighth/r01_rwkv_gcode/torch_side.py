"""RWKV v4 in its parallel form, for G-code tokens."""

import torch
import torch.nn.functional as F
from torch import nn


def shifted(x):
    return F.pad(x, (0, 0, 1, -1))


class WKVAttention(nn.Module):
    def __init__(self, dim, block, blocks):
        super().__init__()
        ramp = torch.arange(dim) / dim
        mu = ramp ** (1 - block / blocks)
        self.mu_r = nn.Parameter(mu.sqrt())
        self.mu_k = nn.Parameter(mu.clone())
        self.mu_v = nn.Parameter(mu + 0.3 * block / blocks)
        self.log_rate = nn.Parameter(-5 + 6 * torch.linspace(0, 1, dim) ** 0.7)
        zigzag = 0.5 * ((torch.arange(dim) + 1) % 3 - 1)
        self.first = nn.Parameter(torch.full((dim,), 0.3).log() + zigzag)
        self.W_r = nn.Linear(dim, dim, bias=False)
        self.W_k = nn.Linear(dim, dim, bias=False)
        self.W_v = nn.Linear(dim, dim, bias=False)
        self.W_o = nn.Linear(dim, dim, bias=False)

    def forward(self, x, prev):
        r = self.W_r(torch.lerp(prev, x, self.mu_r))
        k = self.W_k(torch.lerp(prev, x, self.mu_k))
        v = self.W_v(torch.lerp(prev, x, self.mu_v))
        steps = torch.arange(x.shape[1], device=x.device)
        lag = steps[:, None] - steps[None, :]
        bias = -lag.clamp(min=0)[..., None] * self.log_rate.exp()
        bias = torch.where((lag == 0)[..., None], self.first, bias)
        score = (k[:, None] + bias).masked_fill((lag < 0)[..., None], float("-inf"))
        wkv = torch.einsum("btsc,bsc->btc", score.softmax(dim=2), v)
        return self.W_o(r.sigmoid() * wkv)


class GatedFFN(nn.Module):
    def __init__(self, dim, block, blocks):
        super().__init__()
        mu = (torch.arange(dim) / dim) ** (1 - block / blocks)
        self.mu_r = nn.Parameter(mu.clone())
        self.mu_k = nn.Parameter(mu.clone())
        self.W_r = nn.Linear(dim, dim, bias=False)
        self.W_in = nn.Linear(dim, 4 * dim, bias=False)
        self.W_out = nn.Linear(4 * dim, dim, bias=False)

    def forward(self, x, prev):
        r = self.W_r(torch.lerp(prev, x, self.mu_r))
        k = self.W_in(torch.lerp(prev, x, self.mu_k))
        return r.sigmoid() * self.W_out(k.relu().square())


class Block(nn.Module):
    def __init__(self, dim, block, blocks):
        super().__init__()
        self.norm_att = nn.LayerNorm(dim)
        self.att = WKVAttention(dim, block, blocks)
        self.norm_ffn = nn.LayerNorm(dim)
        self.ffn = GatedFFN(dim, block, blocks)

    def forward(self, x):
        x = x + self.att(self.norm_att(x), self.norm_att(shifted(x)))
        return x + self.ffn(self.norm_ffn(x), self.norm_ffn(shifted(x)))


class RWKV(nn.Module):
    def __init__(self, vocab=48, dim=32, blocks=2):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.norm_in = nn.LayerNorm(dim)
        self.blocks = nn.Sequential(*(Block(dim, i, blocks) for i in range(blocks)))
        self.norm_out = nn.LayerNorm(dim)
        self.unembed = nn.Linear(dim, vocab, bias=False)
        nn.init.uniform_(self.emb.weight, -0.05, 0.05)

    def forward(self, tokens):
        x = self.norm_in(self.emb(tokens.long()))
        return self.unembed(self.norm_out(self.blocks(x)))


def build():
    return RWKV()


def loss(outputs, targets):
    keep = targets != 0
    logits, labels = outputs[keep], targets[keep].long()
    return F.cross_entropy(logits, labels) + 0.5e-4 * logits.amax(-1).square().mean()
