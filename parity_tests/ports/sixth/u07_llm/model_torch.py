import torch
import torch.nn.functional as F
from torch import nn

VOCAB, WIDTH, HEADS, GROUPS, LAYERS = 48, 32, 4, 2, 2
DIM = WIDTH // HEADS


class RMSNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        return F.rms_norm(x, (WIDTH,), self.weight, 1e-6)


def rope(x):
    # x: batch, heads, time, dim; as a product of complex numbers
    half = x.shape[-1] // 2
    t = torch.arange(x.shape[-2], device=x.device, dtype=torch.float64)
    freq = 10000.0 ** (-torch.arange(half, device=x.device, dtype=torch.float64) / half)
    turn = torch.polar(torch.ones_like(t)[:, None], t[:, None] * freq)
    turn = turn.to(torch.complex128 if x.dtype == torch.float64 else torch.complex64)
    z = torch.complex(*x.chunk(2, -1)) * turn
    return torch.cat([z.real, z.imag], -1)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_attn, self.ln_mlp = RMSNorm(), RMSNorm()
        self.wqkv = nn.Linear(WIDTH, (HEADS + 2 * GROUPS) * DIM, bias=False)
        self.proj = nn.Linear(WIDTH, WIDTH, bias=False)
        self.w13 = nn.Linear(WIDTH, 128, bias=False)
        self.w2 = nn.Linear(64, WIDTH, bias=False)
        self.drop_attn, self.drop_mlp = nn.Dropout(0.1), nn.Dropout(0.1)

    def attend(self, x):
        b, t, _ = x.shape
        qkv = self.wqkv(x).view(b, t, HEADS + 2 * GROUPS, DIM).transpose(1, 2)
        q, k, v = qkv.split([HEADS, GROUPS, GROUPS], dim=1)
        q = rope(q).view(b, GROUPS, HEADS // GROUPS, t, DIM)
        k = rope(k)
        scores = torch.einsum("bgrqd,bgsd->bgrqs", q, k) / DIM**0.5
        causal = torch.ones(t, t, dtype=torch.bool, device=x.device).tril()
        weights = scores.masked_fill(~causal, float("-inf")).softmax(-1)
        o = torch.einsum("bgrqs,bgsd->bqgrd", weights, v).reshape(b, t, WIDTH)
        return self.proj(o)

    def forward(self, x):
        x = x + self.drop_attn(self.attend(self.ln_attn(x)))
        gate, up = self.w13(self.ln_mlp(x)).chunk(2, -1)
        return x + self.drop_mlp(self.w2(F.silu(gate) * up))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Parameter(torch.randn(VOCAB, WIDTH) * 0.05)
        self.layers = nn.ModuleList(Decoder() for _ in range(LAYERS))
        self.ln_f = RMSNorm()

    def forward(self, ids):
        x = F.embedding(ids.long(), self.wte) * WIDTH**0.5
        for layer in self.layers:
            x = layer(x)
        return torch.einsum("btd,vd->btv", self.ln_f(x), self.wte)
