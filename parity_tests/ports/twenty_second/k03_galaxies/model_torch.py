import torch
from torch import nn


class SqueezeExcite(nn.Module):
    def __init__(self, c, r):
        super().__init__()
        self.net = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(c, r, 1), nn.ReLU(), nn.Conv2d(r, c, 1), nn.Sigmoid()
        )

    def forward(self, x):
        return x * self.net(x)


class Block(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.short = nn.Conv2d(cin, cout, 1)
        self.body = nn.Sequential(
            nn.Conv2d(cin, cin, 3, padding=1, groups=cin, bias=False),
            nn.Conv2d(cin, cout, 1),
            nn.GroupNorm(4, cout, eps=1e-3),
            SqueezeExcite(cout, 4),
        )

    def forward(self, x):
        return nn.functional.silu(self.body(x) + self.short(x))


class Net(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.stem = nn.Sequential(
            nn.ZeroPad2d((0, 1, 0, 1)),
            nn.Conv2d(3, 12, 3, stride=2, bias=False),
            nn.GroupNorm(3, 12, eps=1e-3),
            nn.SiLU(),
        )
        self.block = Block(12, 16)
        self.pool = nn.AvgPool2d(2, ceil_mode=True)
        self.embed = nn.Linear(16 * 4 * 4, 20)
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(20, classes)

    def forward(self, stamp):
        x = stamp.movedim(-1, 1)
        both = torch.cat([x, x.flip(-1)])
        f = self.pool(self.block(self.stem(both)))
        f = self.embed(f.permute(0, 2, 3, 1).flatten(1))
        f = f.view(2, -1, f.shape[1]).mean(0)
        return self.head(self.drop(f.relu()))
