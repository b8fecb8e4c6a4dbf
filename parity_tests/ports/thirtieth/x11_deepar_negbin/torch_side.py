import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import NegativeBinomial

STEPS, FEATURES, UNITS = 20, 4, (14, 10)


class LayerNormLSTM(nn.Module):
    """One layer, run over the whole sequence."""

    def __init__(self, cin, units):
        super().__init__()
        self.units = units
        self.ih = nn.Linear(cin, 4 * units, bias=False)
        self.hh = nn.Linear(units, 4 * units, bias=False)
        self.bias = nn.Parameter(torch.zeros(4 * units))
        self.norm_x = nn.LayerNorm(4 * units, bias=False)
        self.norm_h = nn.LayerNorm(4 * units, bias=False)
        self.norm_c = nn.LayerNorm(units)

    def forward(self, x):
        h = c = x.new_zeros(x.shape[0], self.units)
        from_input = self.norm_x(self.ih(x)) + self.bias  # all steps at once
        out = []
        for zx in from_input.unbind(1):
            i, f, g, o = (zx + self.norm_h(self.hh(h))).chunk(4, dim=-1)
            c = torch.sigmoid(f + 1) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(self.norm_c(c))
            out.append(h)
        return torch.stack(out, dim=1)


class DeepAR(nn.Module):
    def __init__(self):
        super().__init__()
        sizes = (FEATURES,) + UNITS
        self.rnn = nn.Sequential(*[LayerNormLSTM(a, b) for a, b in zip(sizes, sizes[1:])])
        self.mu = nn.Linear(UNITS[-1], 1)
        self.alpha = nn.Linear(UNITS[-1], 1)

    def forward(self, x):
        demand, rest = x[..., :1], x[..., 1:]
        scale = demand.mean(dim=1, keepdim=True) + 1
        h = self.rnn(torch.cat([demand / scale, rest], dim=-1))
        mu = F.softplus(self.mu(h)) * scale
        alpha = F.softplus(self.alpha(h)) * scale.rsqrt()
        return torch.cat([mu, alpha], dim=-1)


def negbin_nll(y_pred, y_true):
    mu, alpha = y_pred.unbind(-1)
    dist = NegativeBinomial(total_count=1 / alpha, logits=(alpha * mu).log(), validate_args=False)
    return -dist.log_prob(y_true).mean()


def build():
    return DeepAR()
