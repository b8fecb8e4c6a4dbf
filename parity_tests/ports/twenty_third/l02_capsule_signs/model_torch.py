"""Capsule network for traffic signs, PyTorch version.

Images come as (N, 3, 16, 16); forward gives the six capsule lengths.
"""

import torch
import torch.nn.functional as F
from torch import nn

EPS = 1e-7


def length(s, keepdim=False):
    return torch.sqrt((s * s).sum(-1, keepdim=keepdim) + EPS)


def squash(s):
    """Vector non-linearity on the last axis."""
    sq = (s * s).sum(-1, keepdim=True)
    return s * (sq / ((1 + sq) * torch.sqrt(sq + EPS)))


class RoutedCapsules(nn.Module):
    """Capsule layer with three rounds of routing by agreement.

    transform: (input capsules, output capsules, input dim, output dim)
    """

    def __init__(self, n_in, d_in, n_out, d_out, routings=3):
        super().__init__()
        self.transform = nn.Parameter(torch.randn(n_in, n_out, d_in, d_out) * 0.4)
        self.routings = routings

    def route(self, votes, logits):
        """One weighted sum of the votes, (N, i, j, e) -> (N, j, e)."""
        coupling = F.softmax(logits, dim=1)
        return squash(torch.einsum("nij,nije->nje", coupling, votes))

    def forward(self, u):
        # (N, i, 1, 1, d) @ (i, j, d, e) -> (N, i, j, 1, e)
        votes = (u[:, :, None, None, :] @ self.transform).squeeze(3)
        logits = votes.new_zeros(votes.shape[:3])
        for _ in range(self.routings - 1):
            v = self.route(votes, logits)
            logits = logits + torch.einsum("nije,nje->nij", votes, v)
        return self.route(votes, logits)


class CapsNet(nn.Module):
    def __init__(self, n_classes=6):
        super().__init__()
        self.conv = nn.Conv2d(3, 16, kernel_size=5, stride=2)
        self.primary = nn.Conv2d(16, 32, kernel_size=3, stride=2)
        self.sign_caps = RoutedCapsules(2 * 2 * 4, 8, n_classes, 10)

    def forward(self, image):
        x = F.relu(self.conv(image))
        x = self.primary(x)
        # capsules are groups of 8 channels of one pixel, pixel by pixel
        x = x.permute(0, 2, 3, 1).reshape(x.shape[0], -1, 8)
        v = self.sign_caps(squash(x))
        return length(v)


def margin_loss(outputs, targets):
    """Margin loss with m+ = 0.9, m- = 0.1 and down-weighting 0.5."""
    target = targets.view(-1, 1).long()
    absent = F.relu(outputs - 0.1).pow(2)
    present = F.relu(0.9 - outputs.gather(1, target)).pow(2)
    absent_all = absent.sum(1, keepdim=True) - absent.gather(1, target)
    return (present + 0.5 * absent_all).mean()
