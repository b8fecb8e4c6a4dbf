"""The torch port of `carry_keras`, and its optimizers."""

from torch import nn, optim


class Net(nn.Module):
    """Channels first, as a port is."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4, eps=2**-10, momentum=0.01)
        self.hidden = nn.Linear(80, 6)
        self.frozen = nn.Linear(6, 6)
        self.head = nn.Linear(6, 2)
        self.frozen.requires_grad_(False)

    def forward(self, x):
        x = self.norm(self.conv(x).tanh()).flatten(1)
        return self.head(self.frozen(self.hidden(x).tanh()).tanh())


class Other(nn.Module):
    """Another one."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, 2)

    def forward(self, x):
        return self.head(x)


def adam(parameters, **settings):
    return optim.Adam(parameters, 2**-7, (0.875, 1 - 2**-6), 1e-30, **settings)


def adamw(parameters):
    return optim.AdamW(parameters, 2**-7, (0.875, 1 - 2**-6), 1e-30, 2**-5)


def amsgrad(parameters):
    return adam(parameters, amsgrad=True)


def sgd(parameters, **settings):
    return optim.SGD(parameters, 2**-5, 0.875, **settings)


def nesterov(parameters):
    return sgd(parameters, nesterov=True)


def dampened(parameters):
    return sgd(parameters, dampening=0.5)


def slower(parameters):
    return optim.SGD(parameters, 2**-6, 0.875)


def plain(parameters):
    return optim.SGD(parameters, 2**-5)


def rmsprop(parameters):
    return optim.RMSprop(parameters, 2**-9, 0.875, 1e-30, momentum=0.5, centered=True)


def adagrad(parameters):
    return optim.Adagrad(parameters, 2**-5, initial_accumulator_value=2**-3, eps=1e-30)


def adadelta(parameters):
    return optim.Adadelta(parameters, 0.5, 0.875, 2**-10)


def adamax(parameters):
    return optim.Adamax(parameters, 2**-7, (0.875, 1 - 2**-6), 1e-30)


def nadam(parameters):
    return optim.NAdam(parameters, 2**-7)


def grouped(model):
    return optim.SGD(
        [{"params": [model.conv.weight]}, {"params": [model.head.weight], "lr": 0.5}], 2**-5, 0.875
    )


def partial(model):
    return adam(model.conv.parameters())


class Called(nn.Module):
    """It has no weights before it is called."""

    def __init__(self):
        super().__init__()
        self.hidden, self.function, self.head = nn.LazyLinear(6), nn.Tanh(), nn.LazyLinear(2)

    def forward(self, x):
        return self.head(self.function(self.hidden(x)))
