"""Mixture density network for wind power, PyTorch.

Weights are kept as plain parameters in (in, out) layout so that exported
tables can be loaded without transposing.
"""

import torch
from torch import distributions as D
from torch import nn

MIN_SIGMA = 0.05


def softplus(x):
    return torch.logaddexp(x, torch.zeros_like(x))


class Affine(nn.Module):
    """x @ kernel + bias."""

    def __init__(self, n_in, n_out):
        super().__init__()
        bound = (6.0 / (n_in + n_out)) ** 0.5
        self.kernel = nn.Parameter(torch.empty(n_in, n_out).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(n_out))

    def forward(self, x):
        return torch.addmm(self.bias, x, self.kernel)


class Standardize(nn.Module):
    """Layer norm over the features, written out."""

    def __init__(self, dim, eps=1e-4):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(dim))
        self.beta = nn.Parameter(torch.zeros(dim))
        self.eps = eps

    def forward(self, x):
        centred = x - x.mean(-1, keepdim=True)
        std = (x.var(-1, keepdim=True, correction=0) + self.eps).sqrt()
        return centred / std * self.gamma + self.beta


class WindMDN(nn.Module):
    def __init__(self, n_features=5, n_components=4):
        super().__init__()
        self.n_components = n_components
        self.inp = Affine(n_features, 24)
        self.drop = nn.Dropout(0.2)
        self.mid = Affine(24, 24)
        self.norm = Standardize(24)
        self.top = Affine(24, 16)
        self.mixture = Affine(16, 3 * n_components)

    def forward(self, weather):
        x = self.inp(weather).tanh()
        x = x + self.norm(softplus(self.mid(self.drop(x))))
        return self.mixture(self.top(x).tanh())


def mixture_of(params):
    """The torch distribution that belongs to a batch of network outputs."""
    logits, mean, raw = params.unflatten(-1, (3, -1)).unbind(dim=1)
    components = D.Normal(mean, softplus(raw) + MIN_SIGMA)
    return D.MixtureSameFamily(D.Categorical(logits=logits), components)


def nll(outputs, targets):
    """Mean negative log likelihood of the batch."""
    return -mixture_of(outputs).log_prob(targets.reshape(-1)).mean()
