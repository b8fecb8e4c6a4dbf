"""Torch models as a user's code may hold them: odd, broken, or hostile."""

import os
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class Branches(nn.Module):
    """Two inputs, three outputs, a shared layer, a tied weight, a tensor of its own, one that nothing uses."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 6)
        self.shared = nn.Linear(6, 6)
        self.spare = nn.Linear(6, 2)
        self.head = nn.Linear(6, 11, bias=False)
        self.head.weight = self.embed.weight
        self.scale = nn.Parameter(torch.ones(6))

    def forward(self, tokens, numbers):
        x = self.shared(self.embed(tokens).mean(1)) * self.scale
        x = self.shared(F.relu(x, inplace=True)) + numbers
        return {"logits": self.head(x), "features": (x, x.sum(-1)), "note": "text", "nothing": None}


class Lazy(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.LazyConv2d(4, 3)
        self.norm = nn.LazyBatchNorm2d()
        self.fc = nn.LazyLinear(5)

    def forward(self, x):
        return self.fc(self.norm(self.conv(x)).relu_().flatten(1))


class Random(nn.Module):
    """Draws in three ways: a layer, a function, and NumPy."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.drop = nn.Dropout(0.5)
        self.block = Noisy()

    def forward(self, x):
        return self.block(self.drop(self.fc(x)))


class Noisy(nn.Module):
    def forward(self, x):
        if self.training:
            x = F.dropout(x, 0.5) + torch.from_numpy(np.random.normal(size=x.shape))
        return x


class Unowned(nn.Module):
    """Its second layer is in a plain list."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.others = [nn.Linear(4, 3)]

    def forward(self, x):
        return self.others[0](self.first(x))


class Growing(nn.Module):
    """Keeps state of its own beside a batch norm's, and hands its input through."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.same = nn.Identity()
        self.act = nn.ReLU(inplace=True)
        self.norm.requires_grad_(False)
        self.norm.eval()

    def forward(self, *args):
        x = self.same(args[0])
        return x + self.act(self.norm(x))


class Fixed(nn.Module):
    """Holds half precision, tables computed when it is built, and a complex tensor."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4).half()
        self.register_buffer("table", 1.0 / torch.arange(1, 5), persistent=False)
        self.register_buffer("turn", torch.ones(4, dtype=torch.complex64) * 1j)

    def forward(self, x):
        return self.fc(x) * self.table + torch.fft.fft(x).real * self.turn.imag


TABLE = np.diag(np.float32([0.5, 0.25, 2.0, 4.0]))


class Casting(nn.Module):
    """Works in float32 inside, whatever it is given."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        return self.fc(x.float()) @ torch.from_numpy(TABLE) @ torch.tensor(TABLE).type("torch.FloatTensor")


class Mixed(Casting):
    """Makes float32 of what nobody sees."""

    def forward(self, x):
        return self.fc(x) @ torch.FloatTensor(4, 4).fill_(1.0)


class NotANumber(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)

    def forward(self, x):
        return self.fc(x).log()


def needs(width, *, depth):
    return nn.Sequential(*[nn.Linear(width, width) for _ in range(depth)])


def fails():
    return nn.Linear("four", 4)


class FailsLater(nn.Module):
    def forward(self, x):
        return x @ x


def no_model():
    return {"weights": 3}


def leaves():
    sys.exit(3)


def asks():
    return nn.Linear(int(input("how wide? ")), 2)


def chatters():
    print('{"value": null}')
    os.write(1, b'{"error": "not ours"}\n')
    sys.stdout.flush()
    return nn.Linear(4, 2)


def hangs():
    while True:
        time.sleep(0.01)


def dies():
    os.write(2, b"out of luck\n")
    os.kill(os.getpid(), 9)


def moves():
    os.chdir("/")
    torch.set_default_dtype(torch.float16)
    return nn.Linear(4, 2)


def silent():
    """Its parameters take no part."""
    return nn.Identity()


ready = nn.Linear(4, 2)
number = 7


class Holder:
    net = staticmethod(lambda width=4: nn.Linear(width, width))
    broken = property(lambda self: 1 / 0)


def scripted():
    return torch.jit.script(nn.Linear(2, 2))


def traced():
    return torch.jit.trace(nn.Linear(2, 2), torch.zeros(1, 2))


def meta():
    return nn.Linear(2, 2, device="meta")


def compiled():
    return torch.compile(nn.Linear(2, 2))
