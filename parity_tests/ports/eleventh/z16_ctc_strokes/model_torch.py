"""PyTorch port of the reader; the loss is torch's own."""

import torch
from torch import nn
from torch.nn import functional as F


class GatedResidual(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.filter = nn.Conv1d(width, width, 3, padding="same", dilation=dilation)
        self.gate = nn.Linear(width, width)

    def forward(self, x):
        h = self.filter(self.norm(x).mT).mT
        return torch.addcmul(x, self.gate(x).sigmoid(), h.tanh())


class Net(nn.Module):
    def __init__(self, inputs=4, width=20, signs=6):
        super().__init__()
        self.stem = nn.Conv1d(inputs, width, 5, padding=2)
        self.blocks = nn.Sequential(GatedResidual(width, 1), GatedResidual(width, 2))
        self.classify = nn.Linear(width, 1 + signs)

    def forward(self, strokes):
        x = F.relu(self.stem(strokes.mT))
        return self.classify(self.blocks(x.mT))


def ctc(output, labels):
    batch, frames, _ = output.shape
    labels = labels.long()
    lengths = labels.ne(0).sum(dim=1)
    log_probs = output.log_softmax(dim=-1).transpose(0, 1)
    signs = labels[labels.ne(0)]
    each = F.ctc_loss(log_probs, signs, torch.full_like(lengths, frames), lengths, blank=0, reduction="none")
    return each.mean()
