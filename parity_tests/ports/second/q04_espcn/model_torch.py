from torch import nn


def espcn(r=2):
    return nn.Sequential(
        nn.Conv2d(1, 32, 5, padding=2),
        nn.Tanh(),
        nn.Conv2d(32, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, r * r, 3, padding=1),
        nn.PixelShuffle(r),
    )
