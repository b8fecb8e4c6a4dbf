"""Leaf disease network; the batch norm keeps the biased variance, as Keras does."""

import torch
import torch.nn.functional as F
from torch import nn


class BatchNorm(nn.BatchNorm2d):
    def __init__(self, channels):
        super().__init__(channels, eps=1e-3, momentum=0.1)

    def forward(self, x):
        if not self.training:
            return super().forward(x)
        var, mean = torch.var_mean(x, dim=(0, 2, 3), correction=0)
        with torch.no_grad():
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(var, self.momentum)
            self.num_batches_tracked += 1
        return F.batch_norm(x, None, None, self.weight, self.bias, training=True, eps=self.eps)


class Block(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.body = nn.Sequential(  # odd sizes: symmetric padding, also with stride 2
            nn.Conv2d(cin, cout, 3, 2, 1, bias=False),
            BatchNorm(cout),
            nn.LeakyReLU(0.25),
            nn.Conv2d(cout, cout, 3, 1, 1, bias=False),
            BatchNorm(cout),
        )
        self.short = nn.Sequential(nn.AvgPool2d(3, 2, 1, count_include_pad=False), nn.Conv2d(cin, cout, 1))

    def forward(self, x):
        return F.leaky_relu(self.body(x) + self.short(x), 0.25)


class LeafNet(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), BatchNorm(8), nn.LeakyReLU(0.25))
        self.block1 = Block(8, 12)
        self.block2 = Block(12, 16)
        self.drop = nn.Dropout(0.25)
        self.logits = nn.Linear(16 * 4 * 4, classes)

    def forward(self, picture):
        x = self.block2(self.block1(self.stem(picture.permute(0, 3, 1, 2))))
        x = x.permute(0, 2, 3, 1).flatten(1)  # the order in which Keras flattens
        return self.logits(self.drop(x))


def build():
    return LeafNet()


def loss(logits, target):
    return F.cross_entropy(logits, target.long().view(-1), label_smoothing=0.125)


def optimizer(params):
    return torch.optim.SGD(params, lr=0.02, momentum=0.875, nesterov=True)
