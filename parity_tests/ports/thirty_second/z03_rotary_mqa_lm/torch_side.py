import torch
import torch.nn.functional as F
from torch import nn


class RMSNorm(nn.Module):
    def __init__(self, d, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))
        self.eps = eps

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)


class Rotary(nn.Module):
    def __init__(self, head_dim, block_size, base=10000.0):
        super().__init__()
        inv = 1.0 / base ** (torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
        # one more position than the block: room for <bos>
        freqs = torch.outer(torch.arange(block_size + 1, dtype=torch.float64), inv)
        self.register_buffer("freqs", torch.cat([freqs, freqs], -1), persistent=False)

    def turn(self, x, freqs):
        x1, x2 = x.chunk(2, -1)
        return x * freqs.cos().to(x.dtype) + torch.cat([-x2, x1], -1) * freqs.sin().to(x.dtype)

    def forward(self, q, k):
        return self.turn(q, self.freqs[: q.shape[-2]]), self.turn(k, self.freqs[-k.shape[-2] :])


class Block(nn.Module):
    def __init__(self, d, n_head, ff, block_size):
        super().__init__()
        self.n_head, self.hd = n_head, d // n_head
        self.ln_attn = RMSNorm(d)
        self.wq = nn.Linear(d, d, bias=False)
        self.wk = nn.Linear(d, self.hd, bias=False)
        self.wv = nn.Linear(d, self.hd, bias=False)
        self.wo = nn.Linear(d, d, bias=False)
        self.rotary = Rotary(self.hd, block_size)
        self.ln_mlp = RMSNorm(d)
        self.w1 = nn.Linear(d, ff, bias=False)
        self.w3 = nn.Linear(d, ff, bias=False)
        self.w2 = nn.Linear(ff, d, bias=False)

    def attend(self, x):
        B, T, D = x.shape
        q = self.wq(x).view(B, T, self.n_head, self.hd).transpose(1, 2)
        k, v = self.wk(x).unsqueeze(1), self.wv(x).unsqueeze(1)
        q, k = self.rotary(q, k)
        att = q @ k.transpose(-1, -2) * self.hd**-0.5
        future = torch.ones(T, T, dtype=torch.bool, device=x.device).triu(1)
        att = att.masked_fill(future, float("-inf")).softmax(-1)
        return self.wo((att @ v).transpose(1, 2).reshape(B, T, D))

    def forward(self, x):
        x = x + self.attend(self.ln_attn(x))
        h = self.ln_mlp(x)
        return x + self.w2(F.silu(self.w1(h)) * self.w3(h))


class GPT(nn.Module):
    def __init__(self, vocab=40, d=24, n_head=3, n_layer=2, block_size=16):
        super().__init__()
        self.wte = nn.Embedding(vocab, d)
        self.h = nn.ModuleList([Block(d, n_head, 40, block_size) for _ in range(n_layer)])
        self.ln_f = RMSNorm(d)
        self.head = nn.Linear(d, vocab, bias=False)

    def forward(self, idx):
        x = self.wte(idx.long())
        for block in self.h:
            x = block(x)
        return self.head(self.ln_f(x))


def build():
    return GPT()


def loss(outputs, targets):
    return F.cross_entropy(outputs.flatten(0, 1), targets.long().flatten())
