from collections import OrderedDict

from torch import nn


class Permute(nn.Module):
    def __init__(self, *dims):
        super().__init__()
        self.dims = dims

    def forward(self, x):
        return x.permute(*self.dims)


def build():
    return nn.Sequential(
        OrderedDict(
            [
                ("to_nchw", Permute(0, 3, 1, 2)),
                ("stem", nn.Conv2d(3, 6, 3, padding=1)),
                ("act0", nn.ELU()),
                ("pack1", nn.PixelUnshuffle(2)),
                ("gn1", nn.GroupNorm(4, 24)),
                ("conv1", nn.Conv2d(24, 10, 3, padding=1)),
                ("act1", nn.ELU()),
                ("pack2", nn.PixelUnshuffle(2)),
                ("to_nhwc", Permute(0, 2, 3, 1)),
                ("ln2", nn.LayerNorm(40)),
                ("conv2", nn.Linear(40, 12)),
                ("act2", nn.ELU()),
                ("flat", nn.Flatten()),
                ("fc", nn.Linear(192, 3)),
            ]
        )
    )
