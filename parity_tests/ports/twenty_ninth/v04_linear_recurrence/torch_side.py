import torch
import torch.nn.functional as F
from torch import nn


def causal_fft_conv(u, kernel):
    """u: B L H, kernel: L H G (H in, G out) -> B L G."""
    n = 2 * u.shape[1]
    U = torch.fft.rfft(u, n=n, dim=1)
    K = torch.fft.rfft(kernel, n=n, dim=0)
    return torch.fft.irfft(torch.einsum("bfh,fhg->bfg", U, K), n=n, dim=1)[:, : u.shape[1]]


class LRU(nn.Module):
    """Convolutional view: the impulse response is materialised and applied by FFT."""

    def __init__(self, h, n):
        super().__init__()
        self.nu_log = nn.Parameter(torch.empty(n).uniform_(-2.5, -0.7))
        self.theta_log = nn.Parameter(torch.empty(n).uniform_(-2, 0.5))
        self.B_re = nn.Parameter(torch.randn(n, h) / (2 * h) ** 0.5)
        self.B_im = nn.Parameter(torch.randn(n, h) / (2 * h) ** 0.5)
        self.C_re = nn.Parameter(torch.randn(h, n) / (2 * n) ** 0.5)
        self.C_im = nn.Parameter(torch.randn(h, n) / (2 * n) ** 0.5)
        self.D = nn.Parameter(torch.ones(h))
        self.gamma_log = nn.Parameter(torch.empty(n).uniform_(-1, 0))

    def forward(self, u):
        steps = torch.arange(u.shape[1], dtype=u.dtype, device=u.device)
        log_lam = torch.complex(-self.nu_log.exp(), self.theta_log.exp())
        powers = torch.exp(steps[:, None] * log_lam)
        B = torch.complex(self.B_re, self.B_im) * self.gamma_log.exp()[:, None]
        C = torch.complex(self.C_re, self.C_im)
        kernel = torch.einsum("gn,ln,nh->lhg", C, powers, B).real
        return causal_fft_conv(u, kernel) + u * self.D


class Net(nn.Module):
    def __init__(self, c_in=4, h=8, n=6, depth=2):
        super().__init__()
        self.inp = nn.Linear(c_in, h)
        self.norms = nn.ModuleList(nn.LayerNorm(h) for _ in range(depth))
        self.lrus = nn.ModuleList(LRU(h, n) for _ in range(depth))
        self.mixes = nn.ModuleList(nn.Linear(h, 2 * h) for _ in range(depth))
        self.head = nn.Linear(h, 1)

    def forward(self, x):
        x = self.inp(x)
        for norm, lru, mix in zip(self.norms, self.lrus, self.mixes):
            x = x + F.glu(mix(F.gelu(lru(norm(x)))), dim=-1)
        return self.head(x.mean(dim=1))


def build():
    return Net()
