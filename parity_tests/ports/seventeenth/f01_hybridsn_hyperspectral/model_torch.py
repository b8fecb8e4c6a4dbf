"""HybridSN in PyTorch."""

from torch import nn


class Spectral(nn.Sequential):
    """(n, 1, height, width, bands) to (n, bands x channels, height, width)."""

    def __init__(self):
        super().__init__(nn.Conv3d(1, 6, (3, 3, 5)), nn.ReLU(), nn.Conv3d(6, 8, 3), nn.ReLU())

    def forward(self, cube):
        features = super().forward(cube)
        # The 2D kernel sees band by band, each with its channels.
        return features.permute(0, 4, 1, 2, 3).flatten(1, 2)


class Net(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        self.head = nn.Sequential(
            nn.Flatten(),
            nn.Linear(24 * 3 * 3, 48),
            nn.ReLU(inplace=True),
            nn.Dropout(0.3),
            nn.Linear(48, 32),
            nn.ReLU(inplace=True),
            nn.Dropout(0.3),
            nn.Linear(32, classes),
        )
        self.spatial = nn.Sequential(nn.Conv2d(80, 24, 3), nn.ReLU())
        self.spectral = Spectral()

    def forward(self, x):
        return self.head(self.spatial(self.spectral(x)))
