import torch
from torch import nn
from torch.nn import functional as F


class S4D(nn.Module):
    """The state-space layer as a long convolution, by FFT."""

    def __init__(self, channels, n):
        super().__init__()
        self.log_step = nn.Parameter(torch.empty(channels).uniform_(-3, -1))
        self.log_a_real = nn.Parameter(torch.full((channels, n), -0.7))
        self.a_imag = nn.Parameter(10 * torch.rand(channels, n))
        self.c = nn.Parameter(0.05 * torch.randn(2, channels, n))
        self.d = nn.Parameter(torch.ones(channels))

    def kernel(self, length):
        a = torch.complex(-self.log_a_real.exp(), self.a_imag)
        da = a * self.log_step.exp().unsqueeze(-1)
        c = torch.complex(self.c[0], self.c[1]) * (da.exp() - 1) / a
        powers = torch.exp(da.unsqueeze(-1) * torch.arange(length, device=a.device))
        return 2 * (c.unsqueeze(-1) * powers).sum(1).real

    def forward(self, u):
        length = u.shape[-1]
        k = torch.fft.rfft(self.kernel(length), n=2 * length)
        y = torch.fft.irfft(k * torch.fft.rfft(u, n=2 * length), n=2 * length)[..., :length]
        return y + self.d.unsqueeze(-1) * u


class Residual(nn.Module):
    def __init__(self, dim, n, p):
        super().__init__()
        self.ln = nn.LayerNorm(dim)
        self.s4d = S4D(dim, n)
        self.mix = nn.Linear(dim, 2 * dim)
        self.drop = nn.Dropout(p)

    def forward(self, x):
        y = F.gelu(self.s4d(self.ln(x).transpose(1, 2))).transpose(1, 2)
        return x + self.drop(F.glu(self.mix(y), dim=-1))


class Net(nn.Module):
    def __init__(self, features=3, dim=16, n=4, depth=2, classes=5):
        super().__init__()
        self.proj = nn.Linear(features, dim)
        self.layers = nn.Sequential(*(Residual(dim, n, 0.1) for _ in range(depth)))
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        return self.head(self.layers(self.proj(x)).mean(1))
