import torch
from torch import nn

STEPS, VITALS = 24, 6


class GRUDirection(nn.Module):
    """GRU in the layout of keras.layers.GRU(reset_after=True): gates z, r, h."""

    def __init__(self, n_in, units):
        super().__init__()
        self.units = units
        self.kernel = nn.Parameter(torch.empty(n_in, 3 * units))
        self.recurrent_kernel = nn.Parameter(torch.empty(units, 3 * units))
        self.bias = nn.Parameter(torch.zeros(2, 3 * units))
        nn.init.xavier_uniform_(self.kernel)
        nn.init.orthogonal_(self.recurrent_kernel)

    def forward(self, x, mask):
        h = x.new_zeros(x.shape[0], self.units)
        projected = x @ self.kernel + self.bias[0]
        for t in range(x.shape[1]):
            xz, xr, xh = projected[:, t].chunk(3, dim=-1)
            hz, hr, hh = (h @ self.recurrent_kernel + self.bias[1]).chunk(3, dim=-1)
            z = torch.sigmoid(xz + hz)
            r = torch.sigmoid(xr + hr)
            cand = torch.tanh(xh + r * hh)
            new = z * h + (1 - z) * cand
            h = torch.where(mask[:, t, None], new, h)
        return h


class ICUMortality(nn.Module):
    def __init__(self):
        super().__init__()
        self.fwd = GRUDirection(VITALS, 14)
        self.bwd = GRUDirection(VITALS, 14)
        self.norm = nn.LayerNorm(28, eps=1e-5)
        self.fc = nn.Linear(28, 16)
        self.risk = nn.Linear(16, 1)

    def forward(self, x):
        mask = (x != 0).any(dim=-1)
        forward_state = self.fwd(x, mask)
        backward_state = self.bwd(x.flip(1), mask)
        h = torch.cat([forward_state, backward_state], dim=-1)
        h = torch.tanh(self.fc(self.norm(h)))
        return self.risk(h)


def build():
    return ICUMortality()
