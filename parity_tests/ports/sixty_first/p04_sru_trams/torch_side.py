import torch
import torch.nn as nn
import torch.nn.functional as F


class SRUCell(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.d = d
        self.weight = nn.Parameter(torch.empty(d, 3 * d))
        self.weight_c = nn.Parameter(0.3 * torch.randn(2, d))
        self.bias = nn.Parameter(torch.zeros(2 * d))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, x, keep):  # x: T, B, D
        u = x @ self.weight
        z, gates = u[..., : self.d], (u[..., self.d :] + self.bias).unflatten(-1, (2, self.d))
        c = torch.zeros_like(x[0])
        out = []
        for z_t, g_t, x_t, k_t in zip(z, gates, x, keep):
            f, r = torch.sigmoid(g_t + c.unsqueeze(1) * self.weight_c).unbind(1)
            c = torch.where(k_t, torch.lerp(z_t, c, f), c)
            out.append(torch.lerp(x_t, c.tanh(), r))
        return torch.stack(out)


class TramForecaster(nn.Module):
    def __init__(self, n_feats=5, d=20, n_layers=3, n_stops=9, horizon=4):
        super().__init__()
        self.proj = nn.Linear(n_feats, d)
        self.stop_table = nn.Embedding(n_stops, d, padding_idx=0)
        self.layers = nn.ModuleList([SRUCell(d) for _ in range(n_layers)])
        self.readout = nn.Linear(d, horizon)

    def forward(self, history, observed, stop):
        e = self.stop_table(stop.long())
        x = self.proj(history.transpose(0, 1)) + e
        keep = observed.t().unsqueeze(-1).bool()
        for layer in self.layers:
            x = layer(x, keep)
        return F.softplus(self.readout(x[-1] + e))


def poisson_deviance(outputs, targets):
    rate = outputs + 1e-6
    fitted = F.poisson_nll_loss(rate, targets, log_input=False, eps=0.0)
    saturated = (targets - torch.xlogy(targets, targets)).mean()
    return 2 * (fitted - saturated)


def optimizer(params):
    params = list(params)
    bias = [p for p in params if p.ndim == 1]
    rest = [p for p in params if p.ndim > 1]
    opt = torch.optim.AdamW(
        [{"params": rest, "weight_decay": 0.02}, {"params": bias, "weight_decay": 0.0}],
        lr=4e-3,
        betas=(0.9, 0.98),
        eps=1e-10,
    )
    return opt, torch.optim.lr_scheduler.MultiStepLR(opt, milestones=[12, 30], gamma=0.25)


def build():
    return TramForecaster()
