import torch
from torch import nn
from torch.nn import functional as F


class TopKAutoencoder(nn.Module):
    """Tied weights, unit-norm atoms in rows."""

    def __init__(self, dim=16, latents=32, k=5):
        super().__init__()
        self.k = k
        self.atoms = nn.Parameter(nn.init.kaiming_normal_(torch.empty(latents, dim)))
        self.gain = nn.Parameter(torch.ones(latents))
        self.threshold = nn.Parameter(torch.zeros(latents))
        self.pre_bias = nn.Parameter(torch.zeros(dim))

    def forward(self, activations):
        dictionary = F.normalize(self.atoms, dim=1)
        pre = F.linear(activations - self.pre_bias, dictionary * self.gain[:, None], -self.threshold)
        top = pre.topk(self.k, dim=1)
        code = torch.zeros_like(pre).scatter(1, top.indices, top.values.clamp(min=0))
        return code @ dictionary + self.pre_bias


def loss(outputs, targets):
    unexplained = (outputs - targets).pow(2).sum(1)
    return torch.mean(unexplained / (targets.pow(2).sum(1) + 1e-3))
