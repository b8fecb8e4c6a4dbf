import torch
from torch import nn


def bank(k, fan_in, fan_out):
    w = torch.empty(k, fan_in, fan_out)
    bound = (6.0 / (fan_in + fan_out)) ** 0.5
    return nn.Parameter(w.uniform_(-bound, bound))


class RIM(nn.Module):
    """All K mechanisms at once: every weight has a leading axis of mechanisms."""

    def __init__(self, d_in, k=4, active=2, hidden=10, d_key=6, d_value=8):
        super().__init__()
        self.k, self.active, self.scale = k, active, d_key**-0.5
        self.start = nn.Parameter(0.7 * torch.randn(k, hidden))
        self.to_value = nn.Linear(d_in, d_value, bias=False)
        self.to_key = nn.Linear(d_in, d_key, bias=False)
        self.w_query = bank(k, hidden, d_key)
        self.w_in = bank(k, d_value, 3 * hidden)
        self.b_in = nn.Parameter(torch.zeros(k, 3 * hidden))
        self.w_rec = bank(k, hidden, 3 * hidden)
        self.w_ask = bank(k, hidden, d_key)
        self.w_tell = bank(k, hidden, d_key)
        self.w_say = bank(k, hidden, hidden)

    def gru(self, v, h):
        x = torch.einsum("bkv,kvg->bkg", v, self.w_in) + self.b_in
        g = torch.einsum("bkh,khg->bkg", h, self.w_rec)
        xz, xc = x.tensor_split([2 * h.size(-1)], dim=-1)
        gz, gc = g.tensor_split([2 * h.size(-1)], dim=-1)
        u, r = torch.sigmoid(xz + gz).chunk(2, dim=-1)
        return torch.lerp(torch.tanh(xc + r * gc), h, u)

    def forward(self, frames):
        keys, values = self.to_key(frames), self.to_value(frames)
        h = self.start.expand(frames.size(0), -1, -1)
        for key, value in zip(keys.unbind(1), values.unbind(1)):
            # softmax against a null slot of score 0 is a sigmoid
            share = torch.sigmoid(torch.einsum("bkh,khd,bd->bk", h, self.w_query, key) * self.scale)
            chosen = share.topk(self.active, dim=1).indices
            on = torch.zeros_like(share, dtype=torch.bool).scatter_(1, chosen, True).unsqueeze(-1)
            h = torch.where(on, self.gru(share.unsqueeze(-1) * value.unsqueeze(1), h), h)

            ask = torch.einsum("bkh,khd->bkd", h, self.w_ask)
            tell = torch.einsum("bkh,khd->bkd", h, self.w_tell)
            say = torch.einsum("bkh,khd->bkd", h, self.w_say)
            att = torch.softmax(ask @ tell.mT * self.scale, dim=-1)
            h = h + (att @ say).masked_fill(~on, 0.0)
        return h


class Pantograph(nn.Module):
    def __init__(self):
        super().__init__()
        self.rim = RIM(5)
        self.ln = nn.LayerNorm(10)
        self.out = nn.Linear(40, 2)

    def forward(self, frames):
        return self.out(self.ln(self.rim(frames)).flatten(1))


def build():
    return Pantograph()
