import torch
from torch import nn
from torch.optim.lr_scheduler import StepLR


class ResBlock(nn.Module):
    def __init__(self, d_in, d_hidden, d_out):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(d_in, d_hidden), nn.ReLU(), nn.Linear(d_hidden, d_out))
        self.res = nn.Linear(d_in, d_out)
        self.ln = nn.LayerNorm(d_out)

    def forward(self, x):
        return self.ln(self.mlp(x) + self.res(x))


class TiDE(nn.Module):
    def __init__(self, lookback=56, horizon=14, n_cov=5, n_stores=15, d=32, d_dec=6, d_cov=3):
        super().__init__()
        self.horizon = horizon
        self.linear_skip = nn.Linear(lookback, horizon)
        self.embed = nn.Embedding(n_stores, 4)
        self.cov = ResBlock(n_cov, 16, d_cov)
        self.dense = nn.Sequential(
            ResBlock(lookback + (lookback + horizon) * d_cov + 4, d, d),
            ResBlock(d, d, d),
            ResBlock(d, d, d),
            ResBlock(d, d, horizon * d_dec),
        )
        self.temporal = ResBlock(d_dec + d_cov, 8, 4)
        self.out = nn.Linear(d_dec + d_cov + 4, 1)

    def forward(self, sales, calendar, store):
        scale = sales.mean(1, keepdim=True) + 1
        x = sales / scale
        cov = self.cov(calendar)
        h = self.dense(torch.cat([x, cov.flatten(1), self.embed(store.long()).flatten(1)], dim=1))
        h = torch.cat([h.unflatten(1, (self.horizon, -1)), cov[:, -self.horizon :]], dim=2)
        h = self.out(torch.cat([h, self.temporal(h)], dim=2)).squeeze(2)
        return scale * (h + self.linear_skip(x))


def build():
    return TiDE()


def wape(outputs, targets):
    return (outputs - targets).abs().sum() / targets.sum().clamp(min=1)


def optimizer(params):
    opt = torch.optim.SGD(params, lr=0.05)
    return opt, StepLR(opt, step_size=10, gamma=0.6)
