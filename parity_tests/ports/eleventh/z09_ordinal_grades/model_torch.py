"""PyTorch port of the ordinal model, with its loss and its optimizer."""

import torch
from torch import nn
from torch.nn import functional as F


class Excitation(nn.Sequential):
    def __init__(self, features, hidden=4):
        super().__init__(nn.Linear(features, hidden), nn.Tanh(), nn.Linear(hidden, features), nn.Sigmoid())

    def forward(self, x):
        return x * super().forward(x) * 2


class Net(nn.Module):
    def __init__(self, features=10, width=32, grades=5):
        super().__init__()
        self.gate = Excitation(features)
        self.lift = nn.Linear(features, width)
        self.ln = nn.LayerNorm(width)
        self.inner = nn.Linear(width, width)
        self.latent = nn.Linear(width, 1, bias=False)
        self.lowest = nn.Parameter(torch.tensor([-1.5]))
        self.spacing = nn.Parameter(torch.zeros(grades - 2))

    def cuts(self):
        return F.softplus(torch.cat([self.lowest, self.spacing])).cumsum(0)

    def forward(self, x):
        h = self.ln(F.silu(self.lift(self.gate(x))))
        h = h + F.silu(self.inner(h))
        return self.cuts() - self.latent(h)


def ordinal_loss(logits, grade):
    grade = grade.view(-1).long()
    cdf = F.pad(torch.sigmoid(logits), (0, 1), value=1.0)
    pmf = torch.diff(cdf, dim=1, prepend=torch.zeros_like(cdf[:, :1]))
    expected = pmf @ torch.arange(pmf.shape[1], dtype=pmf.dtype, device=pmf.device)
    weight = 1 + 0.5 * (expected - grade).square()
    picked = pmf.gather(1, grade[:, None]).squeeze(1)
    return (weight * -torch.log(picked + 1e-9)).mean()


class ClippedSGD(torch.optim.SGD):
    def __init__(self, params, lr, momentum, max_norm):
        super().__init__(params, lr=lr, momentum=momentum, nesterov=True)
        self.max_norm = max_norm

    @torch.no_grad()
    def step(self, closure=None):
        gradients = [p.grad for group in self.param_groups for p in group["params"] if p.grad is not None]
        for gradient in gradients:
            length = torch.linalg.vector_norm(gradient)
            gradient.mul_((self.max_norm / length).clamp(max=1.0))
        return super().step(closure)


def optimizer(model):
    return ClippedSGD(model.parameters(), lr=0.125, momentum=0.875, max_norm=0.5)
