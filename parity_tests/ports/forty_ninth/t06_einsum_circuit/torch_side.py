import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Normal


class Factors(nn.Module):
    """Univariate inputs of the circuit, (batch, replica, variable, component)."""

    def __init__(self, replicas, n_vars, k):
        super().__init__()
        self.loc = nn.Parameter(torch.randn(replicas, n_vars, k))
        self.spread = nn.Parameter(torch.zeros(replicas, n_vars, k))

    def forward(self, x, seen):
        scale = torch.sigmoid(self.spread) * 1.3 + 0.2
        return Normal(self.loc, scale).log_prob(x[:, None, :, None]) * seen[:, None, :, None]


class SumProduct(nn.Module):
    """Log-domain: all pairs of two neighbours' components, then one mixture of them each."""

    def __init__(self, replicas, regions, k_in, k_out):
        super().__init__()
        self.mixture = nn.Parameter(0.7 * torch.randn(replicas, regions, k_out, k_in, k_in))

    def forward(self, x):
        left, right = x.unflatten(2, (-1, 2)).unbind(3)
        products = (left.unsqueeze(-1) + right.unsqueeze(-2)).flatten(-2)
        weights = self.mixture.flatten(-2).log_softmax(-1)
        return torch.logsumexp(products.unsqueeze(3) + weights, dim=-1)


class Circuit(nn.Module):
    def __init__(self, n_vars=16, replicas=3, k=5, classes=4):
        super().__init__()
        self.mix_replicas = nn.Parameter(torch.zeros(classes, replicas))
        self.inputs = Factors(replicas, n_vars, k)
        tree, regions = [], n_vars // 2
        while regions > 1:
            tree.append(SumProduct(replicas, regions, k, k))
            regions //= 2
        tree.append(SumProduct(replicas, 1, k, classes))
        self.tree = nn.Sequential(*tree)
        orders = [np.random.RandomState(70 + r).permutation(n_vars) for r in range(replicas)]
        self.register_buffer("orders", torch.from_numpy(np.stack(orders)), persistent=False)

    def forward(self, x, observed):
        leaves = self.inputs(x, observed)
        index = self.orders[None, :, :, None].expand_as(leaves)
        arranged = torch.zeros_like(leaves).scatter(2, index, leaves)
        roots = self.tree(arranged).squeeze(2)
        return torch.logsumexp(roots + self.mix_replicas.log_softmax(-1).T, dim=1)


def loss(outputs, targets):
    target = targets.long().flatten()
    nll = -outputs.gather(1, target[:, None]).mean()
    return 0.6 * F.cross_entropy(outputs, target) + 0.4 * nll / 16


def build():
    return Circuit()
