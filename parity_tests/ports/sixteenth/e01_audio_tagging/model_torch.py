import torch
import torch.nn.functional as F
from torch import nn


class BatchNorm(nn.BatchNorm2d):
    """Keras keeps the biased variance of the batches."""

    def __init__(self, channels):
        super().__init__(channels, eps=1e-3, momentum=0.1)

    def forward(self, x):
        if not self.training:
            return super().forward(x)
        with torch.no_grad():
            self.running_mean.lerp_(x.mean((0, 2, 3)), self.momentum)
            self.running_var.lerp_(x.var((0, 2, 3), unbiased=False), self.momentum)
        return F.batch_norm(x, None, None, self.weight, self.bias, True, 0.0, self.eps)


def stage(inputs, outputs, pool):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        BatchNorm(outputs),
        nn.ReLU(),
        nn.AvgPool2d(pool),
        nn.Dropout(0.2),
    )


class Tagger(nn.Module):
    def __init__(self, tags=5):
        super().__init__()
        self.cnn = nn.Sequential(stage(1, 8, (1, 2)), stage(8, 16, (2, 2)), stage(16, 16, (1, 2)))
        self.rnn = nn.GRU(16, 12, batch_first=True, bidirectional=True)
        self.att = nn.Linear(24, tags)
        self.cla = nn.Linear(24, tags)

    def forward(self, logmel, valid):
        x = self.cnn(logmel.unsqueeze(1))
        x = x.mean(3) + x.amax(3)
        x, _ = self.rnn(x.transpose(1, 2))
        mask = F.max_pool1d(valid.unsqueeze(1), 2).transpose(1, 2)
        attention = torch.softmax(torch.tanh(self.att(x)) * mask, dim=1)
        frame = torch.sigmoid(self.cla(x))
        return {"clip": torch.einsum("btc,btc->bc", attention, frame), "frame": frame}
