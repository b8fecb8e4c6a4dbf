"""Hybrid of exponential smoothing and dilated LSTMs."""

import torch
import torch.nn.functional as F
from torch import nn

PERIOD, INPUT, OUTPUT, N_SERIES = 7, 14, 7, 40


class LSTMCell(nn.Module):
    def __init__(self, d_in, d):
        super().__init__()
        self.ih = nn.Linear(d_in, 4 * d)
        self.hh = nn.Linear(d, 4 * d, bias=False)

    def forward(self, x, state):
        h, c = state
        i, f, g, o = (self.ih(x) + self.hh(h)).chunk(4, dim=-1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c


class DRNN(nn.Module):
    """Stack of LSTMs with dilations and skip connections from the second on."""

    def __init__(self, d_in, d, dilations=(1, 2, 4)):
        super().__init__()
        self.cells = nn.ModuleList(LSTMCell(d_in if i == 0 else d, d) for i in range(len(dilations)))
        self.dilations = dilations
        self.d = d

    def forward(self, x):  # time first
        for n, (cell, gap) in enumerate(zip(self.cells, self.dilations)):
            zero = x.new_zeros(x.shape[1], self.d)
            states = [(zero, zero)] * gap
            for step in x:
                states.append(cell(step, states[-gap]))
            y = torch.stack([h for h, _ in states[gap:]])
            x = y if n == 0 else x + y
        return x


class ESRNN(nn.Module):
    def __init__(self, d=24):
        super().__init__()
        self.init_seas = nn.Embedding(N_SERIES, PERIOD)
        self.lev_sms = nn.Embedding(N_SERIES, 1)
        self.seas_sms = nn.Embedding(N_SERIES, 1)
        nn.init.normal_(self.init_seas.weight, 0.0, 0.2)
        nn.init.normal_(self.lev_sms.weight, -0.5, 0.2)
        nn.init.normal_(self.seas_sms.weight, -1.0, 0.2)
        self.drnn = DRNN(INPUT, d)
        self.nl = nn.Linear(d, d)
        self.scoring = nn.Linear(d, OUTPUT)

    def smooth(self, y, idx):
        a = self.lev_sms(idx).squeeze(-1).sigmoid()
        g = self.seas_sms(idx).squeeze(-1).sigmoid()
        seasonals = list(self.init_seas(idx).exp().unbind(1))
        levels = []
        for t, value in enumerate(y.unbind(1)):
            s = seasonals[t]
            if t == 0:
                levels.append(value / s)
                seasonals.append(s)
                continue
            levels.append(torch.lerp(levels[-1], value / s, a))
            seasonals.append(torch.lerp(s, value / levels[-1], g))
        return torch.stack(levels, 1), torch.stack(seasonals, 1)

    def forward(self, sales, shop):
        n = sales.shape[1]
        levels, seasonals = self.smooth(sales, shop.long())
        flat = (sales / seasonals[:, :n]).log().unfold(1, INPUT, 1)
        windows = flat - levels[:, INPUT - 1 :].log().unsqueeze(-1)
        h = self.drnn(windows.transpose(0, 1))[-1]
        out = self.scoring(torch.tanh(self.nl(h)))
        return out.exp() * levels[:, -1:] * seasonals[:, n : n + OUTPUT]


def pinball(outputs, targets, tau=0.48):
    diff = targets - outputs
    loss = tau * F.relu(diff) + (1 - tau) * F.relu(-diff)
    return (loss / targets.mean(1, keepdim=True)).mean()


def optimizer(params):
    params = list(params)
    groups = [
        {"params": [p for p in params if p.ndim > 1], "weight_decay": 2**-8},
        {"params": [p for p in params if p.ndim <= 1], "weight_decay": 0.0},
    ]
    opt = torch.optim.SGD(groups, lr=0.25)
    return opt, torch.optim.lr_scheduler.MultiStepLR(opt, milestones=[16, 32], gamma=0.5)


def build():
    return ESRNN()
