import torch
import torch.nn.functional as F
from torch import nn


class Standardizer(nn.Module):
    """Running mean and variance over the jets' real constituents."""

    def __init__(self, width, momentum=0.1, eps=1e-5):
        super().__init__()
        self.momentum, self.eps = momentum, eps
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("var", torch.ones(width))

    @torch.no_grad()
    def update(self, x, mask):
        real = x[mask]  # (constituents of the batch, features)
        if len(real) == 0:
            return
        self.mean.lerp_(real.mean(0), self.momentum)
        self.var.lerp_((real - self.mean).square().mean(0), self.momentum)

    def forward(self, x, mask):
        if self.training:
            self.update(x, mask)
        return (x - self.mean) / torch.sqrt(self.var + self.eps)


class EFN(nn.Module):
    def __init__(self, width=(24, 16), head=16):
        super().__init__()
        self.norm = Standardizer(2)
        self.phi = nn.Sequential(nn.Linear(2, width[0]), nn.ELU(), nn.Linear(width[0], width[1]), nn.ELU())
        self.f = nn.Sequential(nn.Linear(width[1] + 1, head), nn.ELU(), nn.Linear(head, 1))

    def forward(self, jets):
        pt, angles = jets[..., 0], jets[..., 1:]
        mask = pt > 0
        features = self.phi(self.norm(angles, mask))
        z = pt / pt.sum(1, keepdim=True).clamp(min=1e-6)
        flow = torch.einsum("bp,bpf->bf", z, features)
        multiplicity = mask.to(pt.dtype).mean(1, keepdim=True)
        return self.f(torch.cat([flow, multiplicity], 1))


def loss(outputs, targets):
    return F.binary_cross_entropy_with_logits(outputs, targets.to(outputs.dtype).view_as(outputs))
