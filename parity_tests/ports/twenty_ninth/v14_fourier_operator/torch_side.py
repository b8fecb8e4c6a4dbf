import torch
import torch.nn as nn
import torch.nn.functional as F


class SpectralConv1d(nn.Module):
    def __init__(self, c_in, c_out, modes):
        super().__init__()
        self.modes = modes
        self.real = nn.Parameter(torch.rand(c_in, c_out, modes) / c_in)
        self.imag = nn.Parameter(torch.rand(c_in, c_out, modes) / c_in)

    def forward(self, x):
        ft = torch.fft.rfft(x)
        w = torch.complex(self.real, self.imag)
        low = torch.einsum("bik,iok->bok", ft[..., : self.modes], w)
        low = F.pad(low, (0, ft.shape[-1] - self.modes))
        return torch.fft.irfft(low, n=x.shape[-1])


class FNO(nn.Module):
    def __init__(self, width=6, modes=5):
        super().__init__()
        self.fc0 = nn.Conv1d(2, width, 1)
        self.conv0 = SpectralConv1d(width, width, modes)
        self.conv1 = SpectralConv1d(width, width, modes)
        self.w0 = nn.Conv1d(width, width, 1)
        self.w1 = nn.Conv1d(width, width, 1)
        self.fc1 = nn.Linear(width, 16)
        self.fc2 = nn.Linear(16, 1)

    def forward(self, x):
        b, n = x.shape
        grid = torch.linspace(0, 1, n + 1, dtype=x.dtype, device=x.device)[:-1].repeat(b, 1)
        h = self.fc0(torch.stack([x, grid], dim=1))
        h = F.gelu(self.conv0(h) + self.w0(h))
        h = self.conv1(h) + self.w1(h)
        h = F.gelu(self.fc1(h.transpose(1, 2)))
        return self.fc2(h).squeeze(-1)


class ClippedSGD(torch.optim.SGD):
    """Nesterov SGD on gradients rescaled to a maximal joint norm."""

    def __init__(self, params, lr, max_norm, **kw):
        super().__init__(params, lr=lr, **kw)
        self.max_norm = max_norm

    @torch.no_grad()
    def step(self, closure=None):
        grads = [p.grad for g in self.param_groups for p in g["params"] if p.grad is not None]
        norm = torch.sqrt(sum(g.square().sum() for g in grads))
        if norm > self.max_norm:
            for g in grads:
                g.mul_(self.max_norm / norm)
        return super().step(closure)


def make_optimizer(params):
    return ClippedSGD(params, lr=0.05, max_norm=0.7, momentum=0.9, nesterov=True)


def build():
    return FNO()
