"""A port of worker_keras.py in torch's manner: every default is torch's."""

from collections import OrderedDict

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(3)
        self.leaky = nn.LeakyReLU(inplace=True)
        self.hidden = nn.Linear(48, 6)
        self.act = nn.GELU()
        self.head = nn.Linear(6, 4)

    def forward(self, x):
        x = self.leaky(self.norm(self.conv(x)))
        # Flattened as Keras does.
        x = x.permute(0, 2, 3, 1).flatten(1)
        return self.head(self.act(self.hidden(x)))


class Repeating(Net):
    """Computes a part once more for its backward pass."""

    def forward(self, x):
        x = checkpoint(lambda y: self.leaky(self.norm(self.conv(y))), x, use_reentrant=False)
        return self.head(self.act(self.hidden(x.permute(0, 2, 3, 1).flatten(1))))


def descent(parameters, rate=0.1):
    return torch.optim.SGD(parameters, rate, momentum=0.9)


def descent_of(model, rate=0.1):
    return torch.optim.SGD(model.parameters(), rate)


def warming(parameters):
    """A fifth, two fifths, ... of the rate."""
    optimizer = torch.optim.SGD(parameters, 0.5)
    return optimizer, torch.optim.lr_scheduler.LinearLR(optimizer, 0.2, 1.0, 4)


def hidden(parameters):
    return warming(parameters)[0]


def cycling(parameters):
    optimizer = torch.optim.SGD(parameters, 0.5, momentum=0.9)
    return optimizer, torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.5, total_steps=8)


def short(parameters):
    optimizer = torch.optim.SGD(parameters, 0.5)
    return optimizer, torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.5, total_steps=3, cycle_momentum=False)


def rateless(parameters):
    optimizer = torch.optim.SGD(parameters, 0.5)
    optimizer.rates = [group.pop("lr") for group in optimizer.param_groups]
    return optimizer


def waiting(parameters):
    optimizer = torch.optim.SGD(parameters, 0.5)
    return optimizer, torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)


def groups(parameters):
    first, *rest = parameters
    optimizer = torch.optim.SGD([{"params": [first]}, {"params": rest, "lr": 0.25}], 0.5)
    return optimizer, torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)


class NoOptimizer:
    def __init__(self, parameters):
        del parameters


def conv():
    return nn.Sequential(OrderedDict(conv=nn.Conv2d(2, 3, 3, stride=2, padding=1)))


def pool():
    return nn.Sequential(OrderedDict(pool=nn.AvgPool2d(3, stride=2, padding=1)))


def norm():
    """A batch norm."""
    return nn.Sequential(OrderedDict(norm=nn.BatchNorm2d(2)))


class Rounded(nn.Module):
    """A port of Keras's Rounded."""

    def forward(self, x):
        """(samples, 4, 12, 12)."""
        flat = x.flatten(1)
        even = ((flat - flat.mean(1, keepdim=True)) / flat.std(1, correction=0, keepdim=True)).view_as(x)
        x = x + even + (x[:, :3] * torch.tensor([0.2989, 0.5870, 0.1140])[:, None, None]).sum(1, keepdim=True)
        y = F.local_response_norm(x, 5, alpha=1.5, beta=0.75, k=2.0)
        large = F.interpolate(y, (24, 24), mode="bicubic", antialias=True)
        window = torch.hann_window(24, periodic=False)[:, None]
        pairs = y.permute(0, 2, 3, 1).reshape(-1, 12, 12, 2, 2).contiguous()
        turned = torch.view_as_complex(pairs) * complex(0.6, 0.8)
        seen = x[:, 0] > 0.5
        rows = y.permute(0, 2, 3, 1)[seen]
        of_norm = (rows - rows.mean(0)) / (rows.var(0, correction=0) + 1e-3).sqrt()
        samples = seen.nonzero()[:, 0]
        part = rows.new_zeros(len(x), 4).index_add(0, samples, F.softplus(20 + of_norm))
        return (large * window).sum((2, 3)) + turned.real.sum() + self.alike(x, y)[:, None] + part

    def alike(self, x, y):
        """SSIM, by windows of 11 values with a sigma of 1.5."""
        g = torch.exp(-((torch.arange(11.0) - 5) ** 2) / (2 * 1.5**2))
        kernel = (g[:, None] * g / (g[:, None] * g).sum()).expand(4, 1, 11, 11)

        def blurred(image):
            return F.conv2d(image, kernel, groups=4)

        a, b = blurred(x), blurred(y)
        first, second = (0.01 * 4) ** 2, (0.03 * 4) ** 2
        covered = blurred(x * y) - a * b
        spread = blurred(x * x + y * y) - a * a - b * b
        found = (2 * a * b + first) / (a * a + b * b + first) * (2 * covered + second) / (spread + second)
        return found.mean((1, 2, 3))


def rounded():
    return Rounded()


class Remembering(nn.Module):
    """A state in a tensor that is no buffer, and a list of what it has computed."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
        self.mean = torch.zeros(4)

    def forward(self, x):
        self.seen = [None] * len(self.layers)
        for number, layer in enumerate(self.layers):
            x = self.seen[number] = layer(x)
        self.mean = 0.9 * self.mean + 0.1 * x.mean(0).detach()
        return x - self.mean
