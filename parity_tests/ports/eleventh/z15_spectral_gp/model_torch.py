"""PyTorch port of the classifier with spectral norms and a Gaussian process head."""

import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


class SpectralLinear(nn.Linear):
    def __init__(self, features, bound=0.9):
        super().__init__(features, features)
        self.bound = bound
        self.register_buffer("u", torch.ones(features))

    @torch.no_grad()
    def spectral_norm(self):
        u = F.normalize(self.u, dim=0)
        v = F.normalize(u @ self.weight, dim=0)
        if self.training:
            u = F.normalize(self.weight @ v, dim=0)
            self.u.copy_(u)
        return u @ self.weight @ v

    def forward(self, x):
        shrink = torch.clamp(self.bound / self.spectral_norm(), max=1.0)
        return F.linear(x, self.weight * shrink, self.bias)


class LaplaceHead(nn.Module):
    def __init__(self, inputs, features, classes, keep=0.9, ridge=1e-2):
        super().__init__()
        rng = np.random.default_rng(7)
        dtype = torch.get_default_dtype()
        self.keep, self.ridge = keep, ridge
        self.register_buffer("W", torch.tensor(rng.normal(size=(inputs, features)), dtype=dtype))
        self.register_buffer("b", torch.tensor(rng.uniform(0, 2 * np.pi, features), dtype=dtype))
        self.register_buffer("precision", torch.eye(features))
        self.output = nn.Linear(features, classes, bias=False)

    @torch.no_grad()
    def observe(self, phi):
        self.precision.mul_(self.keep).addmm_(phi.mT, phi, alpha=1 - self.keep)

    def variance(self, phi):
        root = torch.linalg.cholesky(self.precision + self.ridge * torch.eye(len(self.precision)).to(phi))
        return torch.linalg.solve_triangular(root, phi.mT, upper=False).square().sum(dim=0)

    def forward(self, h):
        phi = torch.cos(torch.addmm(self.b, h, self.W)) * math.sqrt(2 / len(self.b))
        logits = self.output(phi)
        if self.training:
            self.observe(phi)
            return logits
        return logits * torch.rsqrt(1 + math.pi / 8 * self.variance(phi)).unsqueeze(1)


class Net(nn.Module):
    def __init__(self, inputs=8, width=24, features=48, classes=3):
        super().__init__()
        self.stem = nn.Linear(inputs, width)
        self.residual = nn.ModuleList(SpectralLinear(width) for _ in range(3))
        self.gp = LaplaceHead(width, features, classes)

    def forward(self, x):
        h = self.stem(x)
        for layer in self.residual:
            h = torch.tanh(layer(h)) + h
        return self.gp(h)
