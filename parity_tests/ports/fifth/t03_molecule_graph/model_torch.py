import math

import torch
import torch.nn.functional as F
from torch import nn

HEADS, SIZE = 4, 8
HIDDEN = HEADS * SIZE


class Net(nn.Module):
    """All weights lie in the model itself, as in the research code that this follows."""

    def __init__(self, features=6, kinds=4):
        super().__init__()

        def weight(*shape):
            return nn.Parameter(torch.randn(*shape) / math.sqrt(shape[-1]))

        self.w1, self.w2 = weight(HIDDEN, features), weight(HIDDEN, HIDDEN)
        # scores of the receiving and the sending atom, one row each
        self.a1, self.a2 = weight(2, HEADS, SIZE), weight(2, HEADS, SIZE)
        self.e1, self.e2 = nn.Parameter(torch.zeros(kinds, HEADS)), nn.Parameter(torch.zeros(kinds, HEADS))
        self.b1, self.b2 = nn.Parameter(torch.zeros(HIDDEN)), nn.Parameter(torch.zeros(HIDDEN))
        self.ln_w, self.ln_b = nn.Parameter(torch.ones(HIDDEN)), nn.Parameter(torch.zeros(HIDDEN))
        self.gate_w, self.gate_b = weight(1, HIDDEN), nn.Parameter(torch.zeros(1))
        self.value_w, self.value_b = weight(24, HIDDEN), nn.Parameter(torch.zeros(24))
        self.out_w, self.out_b = weight(2, 24 + HIDDEN), nn.Parameter(torch.zeros(2))

    @staticmethod
    def attend(x, bonds, w, a, e, b):
        batch, n = x.shape[:2]
        h = F.linear(x, w).view(batch, n, HEADS, SIZE)
        to, of = torch.einsum("bnhd,shd->sbhn", h, a)
        score = F.leaky_relu(to.unsqueeze(-1) + of.unsqueeze(-2), 0.2)
        score = score + F.embedding(bonds, e).permute(0, 3, 1, 2)
        absent = (bonds == 0).unsqueeze(1)
        score = score.masked_fill(absent, -1e9).softmax(-1).masked_fill(absent, 0.0)
        out = score @ h.transpose(1, 2)
        return out.transpose(1, 2).reshape(batch, n, HIDDEN) + b

    def forward(self, atoms, bonds):
        padding = (bonds == 0).all(-1, keepdim=True)
        x = F.elu(self.attend(atoms, bonds, self.w1, self.a1, self.e1, self.b1))
        x = x + F.elu(self.attend(x, bonds, self.w2, self.a2, self.e2, self.b2))
        x = F.layer_norm(x, (HIDDEN,), self.ln_w, self.ln_b, 1e-3)
        gate = torch.sigmoid(F.linear(x, self.gate_w, self.gate_b))
        value = torch.tanh(F.linear(x, self.value_w, self.value_b))
        total = (gate * value).masked_fill(padding, 0.0).sum(1)
        peak = x.masked_fill(padding, -1e9).amax(1)
        return F.linear(torch.cat([total, peak], 1), self.out_w, self.out_b)
