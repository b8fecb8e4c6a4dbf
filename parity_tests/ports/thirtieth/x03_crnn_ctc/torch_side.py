"""CRNN word reader, CTC. Class 0 is the blank and the label padding."""

import torch
import torch.nn.functional as F
from torch import nn

CLASSES = 11


class SumBiGRU(nn.GRU):
    """Bidirectional GRU whose two directions are summed."""

    def forward(self, x):
        out, _ = super().forward(x)
        fwd, bwd = out.chunk(2, dim=-1)
        return fwd + bwd


class CRNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 12, 3, padding=1)
        self.conv3 = nn.Conv2d(12, 16, (4, 3), stride=(2, 1), padding=(1, 1), bias=False)
        self.gn = nn.GroupNorm(4, 16, eps=1e-3)
        self.rnn1 = SumBiGRU(32, 12, batch_first=True, bidirectional=True)
        self.rnn2 = nn.GRU(12, 10, batch_first=True, bidirectional=True)
        self.chars = nn.Linear(20, CLASSES)

    def forward(self, x):
        x = x.permute(0, 3, 1, 2)
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), (2, 1))
        x = F.elu(self.gn(self.conv3(x)))  # B, 16, 2, 20
        x = x.permute(0, 3, 2, 1).flatten(2)  # B, 20, (height, channel)
        x = self.rnn1(x)
        x, _ = self.rnn2(x)
        return self.chars(x)


def ctc_loss(y_pred, y_true):
    y_true = y_true.long()
    b, t, _ = y_pred.shape
    log_probs = F.log_softmax(y_pred, dim=-1).transpose(0, 1)
    frames = torch.full((b,), t, dtype=torch.long)
    chars = (y_true != 0).sum(1)
    return F.ctc_loss(log_probs, y_true, frames, chars, blank=0, reduction="mean")


def build():
    return CRNN()
