import torch
from torch import distributions as D
from torch import nn
from torch.nn import functional as F


def lstm(inputs, hidden):
    """One bias, as in Keras: torch's second one stays at zero."""
    layer = nn.LSTM(inputs, hidden, batch_first=True)
    nn.init.zeros_(layer.bias_hh_l0).requires_grad_(False)
    return layer


class Net(nn.Module):
    def __init__(self, hidden=20, mixtures=4):
        super().__init__()
        self.rnn1 = lstm(3, hidden)
        self.rnn2 = lstm(3 + hidden, hidden)
        self.drop = nn.Dropout(0.1)
        self.out = nn.Linear(2 * hidden, 6 * mixtures + 1)

    def forward(self, strokes):
        a, _ = self.rnn1(strokes)
        b, _ = self.rnn2(torch.cat([strokes, a], dim=-1))
        return self.out(self.drop(torch.cat([a, b], dim=-1)))


def mixture_nll(params, target):
    offset, lifted, valid = target[..., :2], target[..., 2], target[..., 3]
    pi, mu_x, mu_y, ls_x, ls_y, r = params[..., :-1].unflatten(-1, (6, -1)).unbind(-2)
    r, s_x, s_y = r.tanh(), ls_x.exp(), ls_y.exp()
    zero = torch.zeros_like(r)
    tril = torch.stack(
        [torch.stack([s_x, zero], -1), torch.stack([r * s_y, s_y * (1 - r * r).sqrt()], -1)], -2
    )
    normal = D.MultivariateNormal(torch.stack([mu_x, mu_y], -1), scale_tril=tril, validate_args=False)
    log_p = D.MixtureSameFamily(D.Categorical(logits=pi), normal, validate_args=False).log_prob(offset)
    pen = F.binary_cross_entropy_with_logits(params[..., -1], lifted, reduction="none")
    per_sample = ((pen - log_p) * valid).sum(1) / valid.sum(1)
    return per_sample.mean()
