import math

import torch
from torch import nn
from torch.nn import functional as F


def sinkhorn(couplings, log_mu, log_nu, iterations):
    u, v = torch.zeros_like(log_mu), torch.zeros_like(log_nu)
    for _ in range(iterations):
        u = log_mu - torch.logsumexp(couplings + v.unsqueeze(1), dim=2)
        v = log_nu - torch.logsumexp(couplings + u.unsqueeze(2), dim=1)
    return couplings + u.unsqueeze(2) + v.unsqueeze(1)


def log_optimal_transport(scores, alpha, iterations):
    b, m, n = scores.shape
    couplings = alpha.expand(b, m + 1, n + 1).clone()
    couplings[:, :m, :n] = scores
    norm = -math.log(m + n)
    log_mu = scores.new_full((b, m + 1), norm)
    log_nu = scores.new_full((b, n + 1), norm)
    log_mu[:, -1] += math.log(m)
    log_nu[:, -1] += math.log(n)
    return sinkhorn(couplings, log_mu, log_nu, iterations) - norm


class CrossAttention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(dim, dim) for _ in range(3))
        self.merge = nn.Linear(2 * dim, dim)

    def forward(self, x, source):
        # Unscaled dot products, like keras.layers.Attention.
        message = F.scaled_dot_product_attention(self.q(x), self.k(source), self.v(source), scale=1.0)
        return torch.tanh(self.merge(torch.cat([x, message], -1)))


class Matcher(nn.Module):
    def __init__(self, descriptor=6, dim=12, iterations=4):
        super().__init__()
        self.iterations = iterations
        self.descriptor = nn.Linear(descriptor, dim)
        self.position = nn.Sequential(nn.Linear(2, dim), nn.ReLU(), nn.Linear(dim, dim))
        self.left, self.right = CrossAttention(dim), CrossAttention(dim)
        self.bin_score = nn.Parameter(torch.tensor(1.0))

    def forward(self, left_points, left_looks, right_points, right_looks):
        left = self.descriptor(left_looks) + self.position(left_points)
        right = self.descriptor(right_looks) + self.position(right_points)
        left = self.left(left, right)
        right = self.right(right, left)
        scores = left @ right.mT / left.shape[-1] ** 0.5
        return log_optimal_transport(scores, self.bin_score, self.iterations)


def loss(outputs, targets):
    picked = (outputs * targets).sum((1, 2)) / targets.sum((1, 2))
    return -picked.mean()
