import torch
import torch.nn.functional as F
from torch import nn


class BatchNorm(nn.BatchNorm2d):
    """running_var follows the biased batch variance, as in the TF training"""

    def forward(self, x):
        if not self.training:
            return super().forward(x)
        with torch.no_grad():
            self.running_mean += self.momentum * (x.mean((0, 2, 3)) - self.running_mean)
            self.running_var += self.momentum * (x.var((0, 2, 3), unbiased=False) - self.running_var)
        return F.batch_norm(x, None, None, self.weight, self.bias, True, 0.0, self.eps)


def block(cin, cout, kernel, stride, pad):
    return nn.Sequential(
        nn.ZeroPad2d(pad),
        nn.Conv2d(cin, cout, kernel, stride=stride, bias=False),
        BatchNorm(cout, eps=1e-3, momentum=0.99),
        nn.ReLU(),
        nn.MaxPool2d((1, 2)),
    )


class KeywordCRNN(nn.Module):
    def __init__(self, words=6):
        super().__init__()
        self.conv1 = block(1, 8, (3, 3), (1, 1), (1, 1, 1, 1))
        self.conv2 = block(8, 12, (5, 3), (2, 1), (1, 1, 1, 2))
        self.rnn = nn.GRU(48, 20, batch_first=True)
        self.word = nn.Linear(20, words)

    def forward(self, logmel):
        x = self.conv2(self.conv1(logmel.unsqueeze(1)))  # b, c, t, f
        x = x.reshape(x.size(0), x.size(2), -1)
        _, h = self.rnn(x)
        return self.word(h[-1])


def build():
    return KeywordCRNN()
