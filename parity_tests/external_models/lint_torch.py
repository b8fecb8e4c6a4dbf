"""PyTorch ports of the models of `lint_keras`."""

import torch
from torch import nn


class Stock(nn.Module):
    """As `lint_keras.stock`, with every argument left to PyTorch's defaults that can be."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.bn = nn.BatchNorm2d(8)
        self.pool = nn.MaxPool2d(2)
        self.conv2 = nn.Conv2d(8, 16, 3)
        self.leaky = nn.LeakyReLU()
        self.dropout = nn.Dropout()
        self.fc = nn.Linear(16 * 3 * 3, 10)

    def forward(self, x):
        x = self.pool(torch.relu(self.bn(self.conv(x))))
        x = self.dropout(self.leaky(self.conv2(x)))
        return self.fc(x.flatten(1))


def stock_adam(parameters):
    """PyTorch's Adam as it comes."""
    return torch.optim.Adam(parameters)


# As a diagnosis prints it: test_lint.py.
class KerasBatchNorm(nn.BatchNorm2d):  # or nn.BatchNorm1d, nn.BatchNorm3d
    def forward(self, x):
        if not self.training:
            return super().forward(x)
        axes = [0, *range(2, x.dim())]
        with torch.no_grad():
            self.running_mean.lerp_(x.mean(axes), self.momentum)
            self.running_var.lerp_(x.var(axes, unbiased=False), self.momentum)
        return nn.functional.batch_norm(x, None, None, self.weight, self.bias, True, 0.0, self.eps)


class MadeEqual(Stock):
    """As `lint_keras.made_equal`."""

    def __init__(self):
        super().__init__()
        self.bn = KerasBatchNorm(8)
        as_keras_draws(self)

    def forward(self, x):
        x = self.pool(torch.relu(self.bn(self.conv(x))))
        x = self.dropout(self.leaky(self.conv2(x)))
        return self.fc(x.permute(0, 2, 3, 1).flatten(1))


def as_keras_draws(model):
    """Give a model initial values by Keras's rules."""
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d | nn.ConvTranspose2d):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.uniform_(module.weight, -0.05, 0.05)
        elif isinstance(module, nn.LSTM | nn.GRU | nn.RNN):
            for name, tensor in module.named_parameters():
                if name.startswith("bias"):
                    nn.init.zeros_(tensor)
                elif name.startswith("weight_ih"):
                    nn.init.xavier_uniform_(tensor)
                else:
                    nn.init.orthogonal_(tensor)


def chain(parts):
    """Modules one after another, each [class, arguments], with Keras's initial values."""
    model = nn.Sequential(*[getattr(nn, name)(**arguments) for name, arguments in parts])
    as_keras_draws(model)
    return model


class Attention(nn.Module):
    """Self-attention."""

    def __init__(self, **arguments):
        super().__init__()
        self.attention = nn.MultiheadAttention(batch_first=True, **arguments)

    def forward(self, x):
        return self.attention(x, x, x)[0]


class Functional(nn.Module):
    """A function of torch.nn.functional, by name."""

    def __init__(self, name, arguments):
        super().__init__()
        self.name, self.arguments = name, arguments

    def forward(self, x):
        return getattr(nn.functional, self.name)(x, **self.arguments) + 0


class Scaled(nn.Module):
    """A layer that no one but its author knows."""

    def __init__(self):
        super().__init__()
        self.factor = nn.Parameter(torch.ones(8))

    def forward(self, x):
        return x * self.factor


class Activated(nn.Module):
    """A module of a user's own that is nothing but one known function."""

    def forward(self, x):
        return nn.functional.silu(x)


class Clipped(nn.Linear):
    """A linear layer that computes something else."""

    def forward(self, x):
        return super().forward(x).clip(-1, 1)


class Odd(nn.Module):
    """As `lint_keras.Odd`; the weights of `twice` are also those of `tied`."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.twice = nn.Linear(8, 8)
        self.inner = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
        self.scaled = Scaled()
        self.clipped = Clipped(8, 4)
        self.never = nn.Linear(8, 3)
        self.frozen = nn.Linear(8, 8).requires_grad_(False)
        self.drop = nn.Dropout(0.25)
        self.act = Activated()
        self.tied = self.twice

    def forward(self, x):
        x = torch.tanh(self.first(x).relu())
        x = self.act(self.twice(self.twice(x)))
        x = self.frozen(self.drop(self.inner(x)))
        return {"main": self.clipped(self.scaled(x)), "side": x}
