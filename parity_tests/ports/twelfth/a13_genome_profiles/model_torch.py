"""BPNet in PyTorch."""

import torch
from torch import nn
from torch.nn import functional as F


class Dilated(nn.Module):
    """A convolution without padding, added to what is left of its input."""

    def __init__(self, width, dilation):
        super().__init__()
        self.conv = nn.Conv1d(width, width, 3, dilation=dilation)

    def forward(self, x):
        y = F.relu(self.conv(x))
        return x[..., x.shape[-1] - y.shape[-1] :] + y


class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.motifs = nn.Conv1d(4, width, 7)
        self.tower = nn.Sequential(*(Dilated(width, dilation) for dilation in (1, 2, 4)))
        self.profile = nn.Conv1d(width, 2, 17)
        self.count = nn.Linear(width, 2)

    def forward(self, dna):
        x = self.tower(F.relu(self.motifs(dna.transpose(1, 2))))
        pooled = x.mean(2)
        return {"profile": self.profile(x).transpose(1, 2), "count": self.count(pooled)}


def profile_loss(logits, reads):
    log_p = logits.log_softmax(-1)
    total = reads.sum(1)
    ways = torch.lgamma(total + 1) - torch.lgamma(reads + 1).sum(1)
    return (-ways - (reads * log_p).sum(1)).mean()
