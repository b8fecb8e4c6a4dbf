"""What `keras2_models` are in torch."""

from torch import nn


def images(momentum=0.01):
    return nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.ReLU(),
        nn.BatchNorm2d(4, eps=1e-3, momentum=momentum),
        nn.Flatten(),
        nn.Linear(144, 5),
    )


def rows():
    return nn.Sequential(
        nn.Linear(6, 8), nn.Tanh(), nn.BatchNorm1d(8, eps=1e-3, momentum=0.01), nn.Linear(8, 3)
    )
