import torch
from torch import distributions as D
from torch import nn
from torch.nn import functional as F

K = 5


class Net(nn.Module):
    """All parameters of the mixture come from one linear layer."""

    def __init__(self, in_features=6, hidden=40, k=K):
        super().__init__()
        self.sizes = (k, 2 * k, 2 * k, k)
        self.trunk = nn.Sequential(
            nn.Linear(in_features, hidden), nn.Tanh(), nn.Dropout(0.05), nn.Linear(hidden, hidden), nn.Tanh()
        )
        self.params = nn.Linear(hidden, sum(self.sizes))

    def forward(self, x):
        pi, mu, sigma, rho = self.params(self.trunk(x)).split(self.sizes, dim=-1)
        return torch.cat((pi, mu, F.softplus(sigma) + 1e-2, 0.95 * rho.tanh()), dim=-1)


def mixture(params):
    pi, mx, my, sx, sy, rho = params.chunk(6, dim=-1)
    zero = torch.zeros_like(sx)
    tril = torch.stack((sx, zero, rho * sy, sy * (1 - rho**2).sqrt()), dim=-1).unflatten(-1, (2, 2))
    normal = D.MultivariateNormal(torch.stack((mx, my), dim=-1), scale_tril=tril, validate_args=False)
    return D.MixtureSameFamily(D.Categorical(logits=pi, validate_args=False), normal, validate_args=False)


def loss(output, target):
    return -mixture(output).log_prob(target.to(output.dtype)).mean()
