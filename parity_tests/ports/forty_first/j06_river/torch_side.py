import torch
import torch.nn as nn

LEAD = torch.linspace(0.5, 1.5, 8)


class MinimalGated(nn.Module):
    def __init__(self, nin, units):
        super().__init__()
        self.forget = nn.Linear(nin + units, units)
        self.new = nn.Linear(nin + units, units)
        nn.init.ones_(self.forget.bias)

    def forward(self, x, h):
        f = torch.sigmoid(self.forget(torch.cat((x, h), 1)))
        c = torch.tanh(self.new(torch.cat((x, f * h), 1)))
        return torch.lerp(h, c, f)


class Highway(nn.Module):
    def __init__(self, nin, units, depth=2):
        super().__init__()
        self.wx = nn.Linear(nin, 2 * units, bias=False)
        self.micro = nn.ModuleList(nn.Linear(units, 2 * units) for _ in range(depth))

    def forward(self, x, s):
        extra = self.wx(x)
        for lin in self.micro:
            h, t = (lin(s) + extra).chunk(2, -1)
            carry = torch.sigmoid(1.0 - t)
            s = s * carry + h.tanh() * (1 - carry)
            extra = 0
        return s


class River(nn.Module):
    def __init__(self):
        super().__init__()
        self.readout = nn.Sequential(nn.Linear(16 + 20, 12), nn.ReLU(), nn.Linear(12, 1))
        self.top = Highway(20, 16)
        self.between = nn.LayerNorm(20, eps=1e-3)
        self.bottom = MinimalGated(16, 20)
        self.inp = nn.Sequential(nn.Linear(3, 16), nn.SiLU())

    def forward(self, gauge, chunk=None):
        e = self.inp(gauge)
        a, b = gauge.new_zeros(len(gauge), 20), gauge.new_zeros(len(gauge), 16)
        outs = []
        for t in range(e.shape[1]):
            if chunk and t % chunk == 0:
                a, b = a.detach(), b.detach()
            a = self.bottom(e[:, t], a)
            b = self.top(self.between(a), b)
            outs.append(self.readout(torch.cat((b, a), 1)))
        return torch.stack(outs, 1)


def train_step(model, batch):
    x, y = batch[0], batch[1]
    pred = model(x, chunk=len(LEAD))
    err = (pred - y).square().squeeze(-1)
    return (err * LEAD.to(err).repeat(x.shape[1] // len(LEAD))).mean()


def build():
    return River()
