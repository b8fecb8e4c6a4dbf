import torch
import torch.nn.functional as F
from torch import nn


def iterative_pinv(a, n_iter=3):
    eye = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
    z = a.mT / (a.abs().sum(-2).max() * a.abs().sum(-1).max())
    for _ in range(n_iter):
        az = a @ z
        z = 0.25 * z @ (13 * eye - az @ (15 * eye - az @ (7 * eye - az)))
    return z


class NystromAttention(nn.Module):
    def __init__(self, dim, n_heads, n_landmarks, kernel_size=5):
        super().__init__()
        self.n_heads, self.n_landmarks = n_heads, n_landmarks
        self.qkv = nn.Linear(dim, 3 * dim)
        self.conv = nn.Conv2d(
            n_heads, n_heads, (kernel_size, 1), padding=(kernel_size // 2, 0), groups=n_heads, bias=False
        )
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.n_heads, -1).permute(2, 0, 3, 1, 4)
        q = q * q.shape[-1] ** -0.5
        ql, kl = (t.unflatten(2, (self.n_landmarks, -1)).mean(3) for t in (q, k))
        left = (q @ kl.mT).softmax(-1)
        core = (ql @ kl.mT).softmax(-1)
        right = (ql @ k.mT).softmax(-1)
        out = left @ (iterative_pinv(core) @ (right @ v)) + self.conv(v)
        return self.proj(out.transpose(1, 2).flatten(2))


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        return F.rms_norm(x, x.shape[-1:], self.weight, self.eps)


class Layer(nn.Module):
    def __init__(self, dim, n_heads, n_landmarks, hidden):
        super().__init__()
        self.norm1, self.norm2 = RMSNorm(dim), RMSNorm(dim)
        self.attn = NystromAttention(dim, n_heads, n_landmarks)
        self.mlp = nn.Sequential(nn.Linear(dim, hidden), nn.GELU(approximate="tanh"), nn.Linear(hidden, dim))

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class BladeWear(nn.Module):
    def __init__(self, length=96, n_axes=2, dim=16, n_heads=2, n_landmarks=6, n_layers=2, n_grades=4):
        super().__init__()
        self.patches = nn.Conv1d(n_axes, dim, 4, stride=2, padding=1)
        position = torch.arange(length // 2).double().unsqueeze(1) * 0.25 ** torch.arange(dim).double()
        self.register_buffer("position", 0.5 * position.sin().float(), persistent=False)
        self.layers = nn.Sequential(*[Layer(dim, n_heads, n_landmarks, 24) for _ in range(n_layers)])
        self.norm = RMSNorm(dim)
        self.head = nn.Linear(dim, n_grades)

    def forward(self, vibration):
        x = self.patches(vibration.transpose(1, 2)).transpose(1, 2) + self.position
        return self.head(self.norm(self.layers(x)).mean(1))


def build():
    return BladeWear()
