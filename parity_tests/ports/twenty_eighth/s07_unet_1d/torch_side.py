import torch
import torch.nn.functional as F
from torch import nn


def stage(cin, cout):
    return nn.Sequential(
        nn.Conv1d(cin, cout, 3, padding="same"),
        nn.GroupNorm(2, cout),
        nn.ReLU(),
        nn.Conv1d(cout, cout, 3, padding="same"),
        nn.LeakyReLU(0.2),
    )


def halve(x):
    return F.avg_pool1d(F.pad(x, (0, 1)), kernel_size=3, stride=2)


def double(cin, cout):
    return nn.ConvTranspose1d(cin, cout, 3, stride=2, padding=1, output_padding=1)


class Denoiser(nn.Module):
    def __init__(self, widths=(8, 12, 16)):
        super().__init__()
        a, b, c = widths
        self.enc = nn.ModuleList([stage(2, a), stage(a, b)])
        self.bottleneck = stage(b, c)
        self.up = nn.ModuleList([double(c, b), double(b, a)])
        self.dec = nn.ModuleList([stage(2 * b, b), stage(2 * a, a)])
        self.final = nn.Conv1d(a, 1, 1)

    def forward(self, x):
        h = x.transpose(1, 2)
        skips = []
        for e in self.enc:
            h = e(h)
            skips.append(h)
            h = halve(h)
        h = self.bottleneck(h)
        for up, dec in zip(self.up, self.dec):
            h = dec(torch.cat([up(h), skips.pop()], dim=1))
        return self.final(h).transpose(1, 2)


def build():
    return Denoiser()
