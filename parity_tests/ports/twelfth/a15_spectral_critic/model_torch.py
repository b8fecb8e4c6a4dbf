"""The critic in PyTorch."""

import torch
from torch import nn
from torch.nn import functional as F


class SpectralMixin:
    def register_power(self):
        self.register_buffer("u", torch.randn(self.weight.shape[0]) * 0.05)
        nn.init.xavier_uniform_(self.weight)
        nn.init.zeros_(self.bias)

    def normalised(self):
        matrix = self.weight.flatten(1)
        v = F.normalize(self.u @ matrix, dim=0)
        u = F.normalize(matrix @ v, dim=0)
        sigma = u @ matrix @ v
        if self.training:
            self.u = u.detach()
        return self.weight / sigma


class SpectralConv1d(SpectralMixin, nn.Conv1d):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.register_power()

    def forward(self, x):
        return F.conv1d(x, self.normalised(), self.bias, self.stride)


class SpectralLinear(SpectralMixin, nn.Linear):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.register_power()

    def forward(self, x):
        return F.linear(x, self.normalised(), self.bias)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = SpectralConv1d(2, 8, 5, stride=2)
        self.conv2 = SpectralConv1d(8, 12, 4, stride=2)
        self.hidden = SpectralLinear(72, 10)
        self.score = SpectralLinear(10, 1)

    def forward(self, beat):
        x = F.leaky_relu(self.conv1(beat.transpose(1, 2)), 0.25)
        x = F.leaky_relu(self.conv2(x), 0.25)
        x = x.transpose(1, 2).flatten(1)
        x = F.leaky_relu(self.hidden(x), 0.25)
        return self.score(x)


def loss(score, real):
    return F.relu(1 - real.view(-1) * score.squeeze(1)).mean()


def optimizer(model):
    parameters = model.parameters() if isinstance(model, nn.Module) else model
    return torch.optim.SGD(parameters, lr=0.02, momentum=0.75)
