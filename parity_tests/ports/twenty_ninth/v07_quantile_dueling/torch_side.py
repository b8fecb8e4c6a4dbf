import torch
import torch.nn.functional as F
from torch import nn


class QuantileDueling(nn.Module):
    def __init__(self, obs_dim=7, n_actions=4, n_quant=6, width=20):
        super().__init__()
        self.n_actions, self.n_quant = n_actions, n_quant
        self.body = nn.Sequential(
            nn.Linear(obs_dim, width),
            nn.ELU(),
            nn.LayerNorm(width),
            nn.Linear(width, width),
            nn.ELU(),
        )
        self.V = nn.Linear(width, n_quant)
        self.A = nn.Linear(width, n_actions * n_quant)

    def forward(self, x):
        h = self.body(x)
        v = self.V(h).unsqueeze(1)
        a = self.A(h).unflatten(-1, (self.n_actions, self.n_quant))
        a = a - a.mean(dim=-1, keepdim=True)
        return (v + a).flatten(1)


def quantile_huber(output, target, n_actions=4, kappa=1.0):
    B = output.shape[0]
    quants = output.view(B, n_actions, -1)
    n = quants.shape[-1]
    theta = quants[torch.arange(B, device=output.device), target[:, 0].long()]
    returns = target[:, 1:].to(output.dtype)
    theta_e = theta[:, :, None].expand(B, n, returns.shape[1])
    returns_e = returns[:, None, :].expand_as(theta_e)
    u = returns_e - theta_e
    element = F.huber_loss(theta_e, returns_e, reduction="none", delta=kappa)
    mid = (torch.arange(n, dtype=output.dtype, device=output.device) + 0.5) / n
    asym = torch.abs(mid.view(1, 1, n) - (u.detach() < 0).to(output.dtype))
    return (asym * element).mean(dim=2).sum(dim=1).mean()


def build():
    return QuantileDueling()
