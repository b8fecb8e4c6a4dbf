"""Tied, weight-normalised denoising autoencoder for 40-band spectra."""

import torch
import torch.nn.functional as F
from torch import nn

BANDS = 40
WIDTHS = (24, 8)


class WeightNormLinear(nn.Module):
    """Linear map with direction v (out, in) and length g per output unit."""

    def __init__(self, n_in, n_out):
        super().__init__()
        self.v = nn.Parameter(0.3 * torch.randn(n_out, n_in))
        self.g = nn.Parameter(torch.ones(n_out))
        self.bias = nn.Parameter(torch.zeros(n_out))

    @property
    def weight(self):
        direction = self.v / torch.linalg.vector_norm(self.v, dim=0, keepdim=True)
        return self.g.unsqueeze(1) * direction

    def forward(self, x):
        return F.linear(x, self.weight, self.bias)

    def reverse(self, y, bias):
        """Back from output space through the transposed weight."""
        return F.linear(y, self.weight.t(), bias)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc1 = WeightNormLinear(BANDS, WIDTHS[0])
        self.enc2 = WeightNormLinear(WIDTHS[0], WIDTHS[1])
        self.dec_bias2 = nn.Parameter(torch.zeros(WIDTHS[0]))
        self.dec_bias1 = nn.Parameter(torch.zeros(BANDS))

    def encode(self, x):
        return self.enc2(F.elu(self.enc1(x)))

    def decode(self, code):
        h = self.enc2.reverse(F.softsign(code), self.dec_bias2)
        return self.enc1.reverse(F.elu(h), self.dec_bias1)

    def forward(self, x):
        return self.decode(self.encode(x))
