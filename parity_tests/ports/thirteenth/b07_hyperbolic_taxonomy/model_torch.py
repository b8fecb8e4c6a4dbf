import torch
from torch import nn
from torch.nn import functional as F


def to_ball(v):
    length = (v.square().sum(-1, keepdim=True) + 1e-12).sqrt()
    return v * (length.tanh() / length)


def translate(x, y):
    """Moebius addition."""
    xy, xx, yy = (x * y).sum(-1, True), (x * x).sum(-1, True), (y * y).sum(-1, True)
    return torch.addcmul((1 + 2 * xy + yy) * x, 1 - xx, y) / (1 + 2 * xy + xx * yy)


class MuRP(nn.Module):
    def __init__(self, concepts: int = 31, relations: int = 3, dim: int = 6):
        super().__init__()
        # the last column of each concept is its bias
        self.concept = nn.Parameter(
            torch.cat([0.05 * torch.randn(concepts, dim), torch.zeros(concepts, 1)], 1)
        )
        self.relation = nn.Parameter(
            torch.stack([torch.ones(relations, dim), torch.zeros(relations, dim)], 1)
        )
        self.temperature = nn.Parameter(torch.ones(()))

    def forward(self, child, relation, candidates):
        head, head_bias = self.concept[child.long()].split([self.concept.shape[1] - 1, 1], -1)
        tail, tail_bias = self.concept[candidates.long()].split([self.concept.shape[1] - 1, 1], -1)
        stretch, shift = self.relation[relation.long()].unbind(1)
        x = translate(to_ball(head * stretch), to_ball(shift)).unsqueeze(1)
        gap = translate(-x, to_ball(tail))
        gap = (gap.square().sum(-1) + 1e-12).sqrt().clamp(max=1 - 1e-6)
        distance = torch.log1p(gap) - torch.log1p(-gap)
        return head_bias + tail_bias.squeeze(-1) - F.softplus(self.temperature) * distance.square()
