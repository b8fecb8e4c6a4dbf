import torch
from torch import nn
from torch.nn import functional as F


class Cell(nn.Module):
    """mLSTM block, run as a recurrence over a (heads, d, d) state."""

    def __init__(self, dim, hidden, n_heads, kernel=4):
        super().__init__()
        self.n_heads = n_heads
        self.hd = hidden // n_heads
        self.ln = nn.LayerNorm(dim, eps=1e-5)
        self.proj_u = nn.Linear(dim, hidden)
        self.proj_z = nn.Linear(dim, hidden)
        self.dw = nn.Conv1d(hidden, hidden, kernel, groups=hidden, padding=kernel - 1)
        self.wq = nn.Linear(hidden, hidden, bias=False)
        self.wk = nn.Linear(hidden, hidden, bias=False)
        self.wv = nn.Linear(hidden, hidden, bias=False)
        self.if_gates = nn.Linear(3 * hidden, 2 * n_heads)
        self.gn_weight = nn.Parameter(torch.ones(hidden))
        self.lskip = nn.Parameter(torch.ones(hidden))
        self.proj_out = nn.Linear(hidden, dim)

    def recur(self, q, k, v, gates):
        b, t, _ = q.shape
        q, k, v = (a.view(b, t, self.n_heads, self.hd) for a in (q, k, v))
        k = k * self.hd**-0.5
        i_all, f_all = gates.chunk(2, dim=-1)
        f_all = F.logsigmoid(f_all)
        C = q.new_zeros(b, self.n_heads, self.hd, self.hd)
        n = q.new_zeros(b, self.n_heads, self.hd)
        m = q.new_zeros(b, self.n_heads)
        out = []
        for s in range(t):
            m_new = torch.maximum(f_all[:, s] + m, i_all[:, s]).detach()
            f = torch.exp(f_all[:, s] + m - m_new)
            i = torch.exp(i_all[:, s] - m_new)
            C = f[..., None, None] * C + i[..., None, None] * torch.einsum("bhd,bhe->bhde", k[:, s], v[:, s])
            n = f[..., None] * n + i[..., None] * k[:, s]
            m = m_new
            denom = torch.maximum((n * q[:, s]).sum(-1).abs(), torch.exp(-m))
            out.append(torch.einsum("bhde,bhd->bhe", C, q[:, s]) / denom[..., None])
        return torch.stack(out, 1).flatten(2)

    def forward(self, x):
        b, t, _ = x.shape
        y = self.ln(x)
        u = self.proj_u(y)
        conv = F.silu(self.dw(u.transpose(1, 2))[..., :t]).transpose(1, 2)
        q, k, v = self.wq(conv), self.wk(conv), self.wv(u)
        h = self.recur(q, k, v, self.if_gates(torch.cat((q, k, v), -1)))
        h = F.group_norm(h.reshape(b * t, -1), self.n_heads, self.gn_weight, eps=1e-3).view(b, t, -1)
        h = torch.addcmul(h, self.lskip, conv)
        return x + self.proj_out(h * F.silu(self.proj_z(y)))


class DrumNet(nn.Module):
    def __init__(self, n_in=5, dim=16, hidden=32, n_heads=4, n_out=3):
        super().__init__()
        self.inp = nn.Linear(n_in, dim)
        self.layers = nn.Sequential(Cell(dim, hidden, n_heads), Cell(dim, hidden, n_heads))
        self.out = nn.Sequential(nn.LayerNorm(dim, eps=1e-5), nn.Linear(dim, n_out))

    def forward(self, signals):
        return self.out(self.layers(self.inp(signals))[:, -1])


def build():
    return DrumNet()
