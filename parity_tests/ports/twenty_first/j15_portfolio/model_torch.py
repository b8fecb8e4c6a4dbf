import torch
import torch.nn.functional as F
from torch import nn

FEE = 0.1


class Recurrent(nn.Module):
    def __init__(self, n_in, units):
        super().__init__()
        self.units = units
        self.from_x = nn.Linear(n_in, 4 * units)
        self.from_h = nn.Linear(units, 4 * units, bias=False)

    def forward(self, x):
        h = c = x.new_zeros(len(x), self.units)
        seen = []
        for drive in self.from_x(x).unbind(dim=1):
            i, f, g, o = (drive + self.from_h(h)).chunk(4, dim=-1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            seen.append(h)
        return torch.stack(seen, dim=1)


class Net(nn.Module):
    def __init__(self, features=4, units=10):
        super().__init__()
        self.lstm = Recurrent(features, units)
        self.score = nn.Linear(units, 1)

    def forward(self, panel):
        b, days, assets, features = panel.shape
        x = panel.reshape(b * assets, days, features)
        score = self.score(self.lstm(x)).view(b, assets, days)
        return torch.softmax(score.transpose(1, 2), dim=-1)


def negative_sharpe(hold, ret):
    traded = F.pad((hold[:, 1:] - hold[:, :-1]).abs().sum(dim=-1), (1, 0))
    net = (hold * ret).sum(dim=-1) - FEE * traded
    return -(net.mean(dim=1) / (net.std(dim=1) + 1e-4)).mean()
