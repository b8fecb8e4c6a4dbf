"""SELD network with multi-ACCDOA outputs."""

import torch
from torch import nn

# dummy tracks of every candidate: A0 | B0 B1 | C0 C1 C2
ONE = [[0, 0, 0]]
TWO = [[1, 1, 2], [1, 2, 1], [1, 2, 2], [2, 1, 1], [2, 1, 2], [2, 2, 1]]
THREE = [[3, 4, 5], [3, 5, 4], [4, 3, 5], [4, 5, 3], [5, 3, 4], [5, 4, 3]]
PICK = torch.tensor(ONE + TWO + THREE)
PAD = torch.tensor(
    [[TWO[0], THREE[0]]] * len(ONE) + [[ONE[0], THREE[0]]] * len(TWO) + [[ONE[0], TWO[0]]] * len(THREE)
)


class ConvBlock(nn.Module):
    def __init__(self, c_in, c_out, bands, pool, p=0.05):
        super().__init__()
        self.conv = nn.Conv2d(c_in, c_out, 3, padding=1, bias=False)
        self.norm = nn.LayerNorm((bands, c_out))
        self.tail = nn.Sequential(nn.ReLU(), nn.MaxPool2d(pool), nn.Dropout(p))

    def forward(self, x):
        x = self.norm(self.conv(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return self.tail(x)


class ProductBiGRU(nn.GRU):
    """Both directions multiplied."""

    def __init__(self, inputs, units):
        super().__init__(inputs, units, batch_first=True, bidirectional=True)

    def forward(self, x):
        forth, back = super().forward(x)[0].chunk(2, dim=-1)
        return forth * back


class SELDNet(nn.Module):
    def __init__(self, maps=7, bands=16, units=32, heads=4, tracks=3, classes=4):
        super().__init__()
        self.maps, self.shape = maps, (tracks, 3, classes)
        self.readout = nn.Sequential(nn.Linear(units, 48), nn.Linear(48, tracks * 3 * classes), nn.Tanh())
        self.attention = nn.MultiheadAttention(units, heads, batch_first=True)
        self.norm = nn.LayerNorm(units)
        self.rnn = nn.Sequential(ProductBiGRU(32 * bands // 8, units), ProductBiGRU(units, units))
        self.cnn = nn.Sequential(
            ConvBlock(maps, 16, bands, (5, 2)),
            ConvBlock(16, 24, bands // 2, (1, 2)),
            ConvBlock(24, 32, bands // 4, (1, 2)),
        )

    def forward(self, features):
        if features.shape[1] != self.maps:
            features = features.permute(0, 3, 1, 2)
        x = self.cnn(features)
        x = self.rnn(x.permute(0, 2, 3, 1).flatten(2))
        x = self.norm(x + self.attention(x, x, x, need_weights=False)[0])
        return self.readout(x).unflatten(-1, self.shape)


def build():
    return SELDNet()


def adpit_loss(outputs, targets):
    vectors = targets[:, :, :, 1:] * targets[:, :, :, :1]
    candidates = vectors[:, :, PICK] + vectors[:, :, PAD].sum(3)
    errors = (outputs.unsqueeze(2) - candidates).square().mean((3, 4))
    return errors.min(dim=2).values.mean()
