import torch
from torch import nn
from torch.nn import functional as F


class CTLSTMCell(nn.Module):
    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.linear = nn.Linear(input_size + hidden_size, 7 * hidden_size)

    def forward(self, x, h, c, c_bar):
        gates = self.linear(torch.cat((x, h), dim=-1))
        i, f, o, i_bar, f_bar, z, d = gates.chunk(7, dim=-1)
        z = z.tanh()
        c_new = f.sigmoid() * c + i.sigmoid() * z
        c_bar = f_bar.sigmoid() * c + i_bar.sigmoid() * z
        return c_new, c_bar, F.softplus(d), o.sigmoid()


class Net(nn.Module):
    def __init__(self, num_types=4, embed_dim=8, hidden=16, samples=4):
        super().__init__()
        self.hidden = hidden
        self.embed = nn.Embedding(num_types + 1, embed_dim)
        self.cell = CTLSTMCell(embed_dim, hidden)
        self.to_lambda = nn.Linear(hidden, num_types)
        self.log_scale = nn.Parameter(torch.full((num_types,), -0.7))
        # (Q, 1): all points of a gap are evaluated at once
        self.register_buffer("grid", torch.arange(1, samples + 1).div(samples).unsqueeze(1), persistent=False)

    def forward(self, kinds, gaps):
        h = c = c_bar = gaps.new_zeros(gaps.size(0), self.hidden)
        trajectory = []
        for x, dt in zip(self.embed(kinds).unbind(1), gaps.unbind(1)):
            c0, c_bar, delta, o = self.cell(x, h, c, c_bar)
            t = dt[:, None, None] * self.grid
            c_t = c_bar.unsqueeze(1) + (c0 - c_bar).unsqueeze(1) * torch.exp(-delta.unsqueeze(1) * t)
            h_t = o.unsqueeze(1) * c_t.tanh()
            c, h = c_t[:, -1], h_t[:, -1]
            trajectory.append(h_t)
        scale = self.log_scale.exp()
        return scale * F.softplus(self.to_lambda(torch.stack(trajectory, dim=1)))


def loss(output, target):
    kind, dt = target[..., 0].long(), target[..., 1].to(output.dtype)
    mask = kind > 0
    lam = output[:, :, -1].gather(-1, (kind - 1).clamp(min=0).unsqueeze(-1)).squeeze(-1)
    event_ll = torch.where(mask, lam, 1.0).log().sum(1)
    compensator = (output.sum(-1).mean(-1) * dt).sum(1)
    return ((compensator - event_ll) / mask.sum(1)).mean()
