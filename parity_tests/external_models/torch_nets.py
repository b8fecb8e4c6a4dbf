"""Ports of the models in keras_nets.py."""

import torch
from torch import nn


class MLP(nn.Module):
    """A port of `mlp`."""

    def __init__(self, units=8):
        super().__init__()
        self.first, self.second = nn.Linear(6, units), nn.Linear(units, units)
        self.last = nn.Linear(units, 3)
        # A table in torch's default precision, which no state holds.
        self.register_buffer("ramp", torch.linspace(0.1, 1, units), persistent=False)

    def forward(self, x):
        return self.last(self.ramp * torch.tanh(self.second(torch.tanh(self.first(x)))))


class KerasBatchNorm2d(nn.BatchNorm2d):
    """Its running variance is the biased one, as Keras's is."""

    def forward(self, x):
        if self.training:
            with torch.no_grad():
                variance, mean = torch.var_mean(x, (0, 2, 3), correction=0)
                for running, batch in ((self.running_mean, mean), (self.running_var, variance)):
                    running.mul_(1 - self.momentum).add_(batch, alpha=self.momentum)
        mean, variance = (None, None) if self.training else (self.running_mean, self.running_var)
        return nn.functional.batch_norm(x, mean, variance, self.weight, self.bias, self.training, 0, self.eps)


class CNN(nn.Module):
    """A port of `cnn`."""

    def __init__(self, epsilon=1e-5, norm=KerasBatchNorm2d):
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, padding="same", bias=False)
        self.norm = norm(4, eps=epsilon)
        self.pool = nn.AvgPool2d(2)
        self.head = nn.Linear(36, 3)

    def forward(self, image):
        x = self.pool(torch.tanh(self.norm(self.conv(image))))
        return self.head(x.flatten(1))


class StockCNN(CNN):
    """With torch's own batch norm, whose running variance is the unbiased one."""

    def __init__(self):
        super().__init__(norm=nn.BatchNorm2d)


class Masks(nn.Module):
    """A port of `masks`."""

    def __init__(self):
        super().__init__()
        self.conv, self.classes = nn.Conv2d(2, 4, 3, padding="same"), nn.Conv2d(4, 3, 1)

    def forward(self, image):
        return self.classes(torch.tanh(self.conv(image)))


class Text(nn.Module):
    """A port of `Text`."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(12, 8)
        self.lstm = nn.LSTM(8, 8, batch_first=True)
        self.attend = nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, tokens):
        x, _ = self.lstm(self.embed(tokens))
        x = x + self.attend(x, x, x, need_weights=False)[0]
        return self.head(x.mean(1))


class Unused(nn.Module):
    """A port of `Unused`."""

    def __init__(self):
        super().__init__()
        self.first, self.spare, self.last = nn.Linear(6, 5), nn.Linear(5, 4), nn.Linear(5, 3)

    def forward(self, x):
        hidden = torch.tanh(self.first(x))
        self.spare(hidden)
        return self.last(hidden)


class Dropped(nn.Module):
    """A port of `dropped`."""

    def __init__(self, rate=0.5):
        super().__init__()
        self.first, self.drop, self.last = nn.Linear(6, 8), nn.Dropout(rate), nn.Linear(4, 3)
        self.lstm = nn.LSTM(4, 4, batch_first=True)

    def forward(self, x):
        x = self.drop(torch.tanh(self.first(x)))
        return self.last(self.lstm(x.unflatten(1, (2, 4)))[0][:, -1])


class Last(nn.Module):
    """One dense layer: a port of `penalised`."""

    def __init__(self, outputs=1):
        super().__init__()
        self.last, self.outputs = nn.Linear(6, 3), outputs

    def forward(self, x):
        y = self.last(x)
        return y if self.outputs == 1 else (y,) * self.outputs


class TwoInputs(nn.Module):
    """A port of `two_inputs`."""

    def __init__(self):
        super().__init__()
        self.last = nn.Linear(10, 3)

    def forward(self, left, right):
        return self.last(torch.cat([left, right], 1))


class Lacking(MLP):
    """Its second layer has another name."""

    def __init__(self):
        super().__init__()
        self.middle = self.second
        del self.second

    def forward(self, x):
        return self.last(torch.tanh(self.middle(torch.tanh(self.first(x)))))


def fails():
    """It cannot be built."""
    raise RuntimeError("no such weights")
