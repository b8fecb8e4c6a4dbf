import torch
import torch.nn.functional as F
from torch import nn


class PreActBlock(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.branch = nn.Sequential(
            nn.GroupNorm(4, cin, eps=1e-3),
            nn.LeakyReLU(0.1),
            nn.Conv2d(cin, cout, 3, stride=2, padding=1),  # odd sizes: same padding is symmetric
            nn.GroupNorm(4, cout, eps=1e-3),
            nn.LeakyReLU(0.1),
            nn.Conv2d(cout, cout, 3, padding=1),
        )
        self.shortcut = nn.Sequential(
            nn.AvgPool2d(3, stride=2, padding=1), nn.Conv2d(cin, cout, 1, bias=False)
        )

    def forward(self, x):
        return self.branch(x) + self.shortcut(x)


class Spotter(nn.Module):
    def __init__(self, words=8):
        super().__init__()
        self.stem = nn.Conv2d(1, 8, (5, 3), padding=(2, 1))
        self.blocks = nn.Sequential(PreActBlock(8, 12), PreActBlock(12, 16))
        self.drop = nn.Dropout2d(0.2)
        self.fc = nn.Linear(32, words)

    def forward(self, mel):
        x = self.blocks(self.stem(mel.unsqueeze(1)))
        x = self.drop(F.relu(x))
        return self.fc(torch.cat([x.amax((2, 3)), x.mean((2, 3))], 1))


def build():
    return Spotter()
