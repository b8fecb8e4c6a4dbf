import torch.nn.functional as F
from torch import nn


class SubSpectralNorm(nn.Module):
    """BatchNorm by sub-bands of mel rows; the channels of the norm are (band, channel)."""

    def __init__(self, channels, bands=3):
        super().__init__()
        self.bands = bands
        self.bn = nn.BatchNorm2d(channels * bands)

    def forward(self, x):
        b, c, f, t = x.shape
        s = self.bands
        y = x.view(b, c, f // s, s, t).permute(0, 3, 1, 2, 4)
        y = self.bn(y.reshape(b, s * c, f // s, t)).view(b, s, c, f // s, t)
        return y.permute(0, 2, 3, 1, 4).reshape(b, c, f, t)


class BCBlock(nn.Module):
    def __init__(self, cin, cout, dilation, transition=False, halve=False):
        super().__init__()
        self.same = not transition
        self.entry = None
        if not self.same:
            self.entry = nn.Sequential(nn.Conv2d(cin, cout, 1, bias=False), nn.BatchNorm2d(cout), nn.ReLU())
            if halve:
                self.entry.append(nn.AvgPool2d((2, 1)))
        self.f2 = nn.Sequential(
            nn.Conv2d(cout, cout, (3, 1), padding=(1, 0), groups=cout, bias=False), SubSpectralNorm(cout)
        )
        self.f1 = nn.Sequential(
            nn.Conv1d(cout, cout, 3, padding=dilation, dilation=dilation, groups=cout, bias=False),
            nn.BatchNorm1d(cout),
            nn.SiLU(),
            nn.Conv1d(cout, cout, 1),
            nn.Dropout(0.1),
        )

    def forward(self, x):
        z = x if self.entry is None else self.entry(x)
        z = self.f2(z)
        out = z + self.f1(z.mean(2)).unsqueeze(2)
        return F.relu(out + x if self.same else out)


class FrogNet(nn.Module):
    def __init__(self, widths=(8, 12, 16), depth=2, species=6):
        super().__init__()
        self.stem = nn.Conv2d(1, 8, 5, stride=(2, 1), bias=False)
        self.stem_norm = nn.BatchNorm2d(8)
        blocks, cin = [], 8
        for i, c in enumerate(widths):
            for j in range(depth):
                blocks.append(BCBlock(cin, c, 2**i, transition=j == 0, halve=i == 1 and j == 0))
                cin = c
        self.blocks = nn.Sequential(*blocks)
        self.tail = nn.Sequential(
            nn.Conv2d(cin, cin, 3, groups=cin, bias=False),
            nn.Conv2d(cin, 24, 1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Dropout(0.2),
            nn.Linear(24, species),
        )

    def forward(self, clip):
        x = F.pad(clip[:, None], (2, 2, 1, 2))
        return self.tail(self.blocks(F.relu(self.stem_norm(self.stem(x)))))


def build():
    return FrogNet()
