import torch
from torch import nn
from torch.nn import functional as F


class P4Lift(nn.Module):
    def __init__(self, inputs, outputs, size):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs, size, size))
        nn.init.kaiming_normal_(self.weight)

    def forward(self, x):
        bank = torch.stack([self.weight.rot90(r, (-2, -1)) for r in range(4)], 1)
        y = F.conv2d(x, bank.flatten(0, 1), padding="same")
        return y.unflatten(1, (-1, 4))


class P4Conv(nn.Module):
    def __init__(self, inputs, outputs, size=3):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs, 4, size, size))
        nn.init.kaiming_normal_(self.weight)

    def forward(self, x):
        turned = [self.weight.rot90(r, (-2, -1)).roll(-r, 2) for r in range(4)]
        bank = torch.stack(turned, 1).flatten(2, 3).flatten(0, 1)
        y = F.conv2d(x.flatten(1, 2), bank, padding="same")
        return y.unflatten(1, (-1, 4))


class P4CNN(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        layers, channels = [P4Lift(1, 6, 5)], 6
        for width in (8, 8):
            layers += [self.norm(channels), nn.ReLU(), nn.MaxPool3d((1, 2, 2)), P4Conv(channels, width)]
            channels = width
        self.features = nn.Sequential(*layers, self.norm(channels), nn.ReLU())
        self.classifier = nn.Linear(channels, classes)

    @staticmethod
    def norm(channels):
        # statistics over the batch, the four orientations and the plane
        return nn.BatchNorm3d(channels, eps=1e-3, momentum=0.01)

    def forward(self, x):
        x = self.features(x)
        return self.classifier(x.amax(2).mean((-2, -1)))
