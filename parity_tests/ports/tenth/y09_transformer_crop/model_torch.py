import torch
from torch import nn
from torch.nn import functional as F


class FlattenLast(nn.Module):
    """Flattens (C, H, W) with the channels last, so that the weights of a Keras Dense fit."""

    def forward(self, x):
        return x.permute(0, 2, 3, 1).reshape(x.shape[0], -1)


class Localiser(nn.Sequential):
    def __init__(self):
        super().__init__(
            nn.Conv2d(1, 8, 3),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 12, 3),
            nn.ReLU(inplace=True),
            FlattenLast(),
            nn.Linear(12 * 3 * 3, 24),
            nn.ReLU(inplace=True),
            nn.Linear(24, 6),
            nn.Unflatten(1, (2, 3)),
        )
        nn.init.normal_(self[8].weight, std=0.02)
        with torch.no_grad():
            self[8].bias.copy_(torch.tensor([0.87, 0.06, 0.03, -0.05, 0.91, -0.04]))


class Net(nn.Module):
    def __init__(self, crop=8):
        super().__init__()
        self.crop = crop
        self.localise = Localiser()
        self.classify = nn.Sequential(
            nn.Conv2d(1, 12, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(12, 16, 3),
            nn.ReLU(inplace=True),
            FlattenLast(),
            nn.Dropout(0.2),
            nn.Linear(16 * 2 * 2, 10),
        )

    def forward(self, x):
        n, c, _, _ = x.shape
        grid = F.affine_grid(self.localise(x), (n, c, self.crop, self.crop), align_corners=True)
        x = F.grid_sample(x, grid, mode="bilinear", padding_mode="border", align_corners=True)
        return self.classify(x)
