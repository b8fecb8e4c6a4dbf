from torch import nn


class ToChannelsLast(nn.Module):
    def forward(self, x):
        return x.permute(0, 2, 3, 1)


class Net(nn.Module):
    def __init__(self, classes=10):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1, bias=False),
            nn.GroupNorm(8, 16),
            nn.ReLU(),
            nn.AvgPool2d(3, stride=2, padding=1),
        )
        self.separable = nn.Sequential(
            nn.Conv2d(16, 16, 3, padding=1, groups=16, bias=False),
            nn.Conv2d(16, 32, 1, bias=False),
            nn.GroupNorm(8, 32),
            nn.ReLU(),
        )
        self.head = nn.Sequential(ToChannelsLast(), nn.Flatten(), nn.Linear(8 * 8 * 32, classes))

    def forward(self, x):
        return self.head(self.separable(self.stem(x)))
