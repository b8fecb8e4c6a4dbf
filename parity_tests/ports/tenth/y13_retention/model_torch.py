import torch
from torch import nn
from torch.nn import functional as F


class RecurrentRetention(nn.Module):
    """Retention as a recurrence: S_t = gamma * S_{t-1} + k_t v_t^T, y_t = q_t S_t"""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.head_dim = heads, dim // heads
        self.qkvg = nn.Linear(dim, 4 * dim, bias=False)
        self.o_proj = nn.Linear(dim, dim, bias=False)

    def forward(self, x):
        b, t, dim = x.shape
        h, d = self.heads, self.head_dim
        q, k, v, g = self.qkvg(x).chunk(4, dim=-1)

        freq = 100.0 ** -torch.linspace(0, 1, d // 2, dtype=x.dtype, device=x.device)
        phase = torch.outer(torch.arange(t, dtype=x.dtype, device=x.device), freq)
        turn = torch.polar(torch.ones_like(phase), phase)[:, None]
        q, k = (
            torch.view_as_real(torch.view_as_complex(y.reshape(b, t, h, d // 2, 2)) * turn).flatten(-2)
            for y in (q, k)
        )
        v = v.reshape(b, t, h, d)

        gamma = 1 - torch.exp2(-2 - torch.arange(h, dtype=x.dtype, device=x.device))
        state, outputs = x.new_zeros(b, h, d, d), []
        for q_t, k_t, v_t in zip(q.unbind(1), k.unbind(1), v.unbind(1)):
            state = gamma[:, None, None] * state + k_t[..., :, None] * v_t[..., None, :]
            outputs.append(torch.einsum("bhd,bhde->bhe", q_t, state))
        # the keys' scale may as well be applied here: both are linear in them
        y = torch.stack(outputs, dim=1) / d**0.5
        y = F.group_norm(y.reshape(b * t, dim), h, eps=1e-5).view(b, t, dim)
        return self.o_proj(F.silu(g) * y)


class Layer(nn.Module):
    def __init__(self, dim, heads, dropout):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.retention = RecurrentRetention(dim, heads)
        self.ffn = nn.Sequential(nn.Linear(dim, 2 * dim), nn.SiLU(), nn.Linear(2 * dim, dim))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        x = x + self.dropout(self.retention(self.norm1(x)))
        return x + self.dropout(self.ffn(self.norm2(x)))


class Net(nn.Module):
    def __init__(self, features=5, dim=32, heads=4, layers=2):
        super().__init__()
        self.embed = nn.Linear(features, dim)
        self.layers = nn.ModuleList(Layer(dim, heads, 0.1) for _ in range(layers))
        self.head = nn.Linear(dim, 1)

    def forward(self, x):
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x[:, -1])


def loss(output, target):
    return F.smooth_l1_loss(output.flatten(), target.flatten().to(output.dtype))
