import torch
import torch.nn.functional as F
from torch import nn

SCALE = 2


class ResBlock(nn.Module):
    def __init__(self, c, scale=0.1):
        super().__init__()
        self.a = nn.Conv2d(c, c, 3, padding=1)
        self.b = nn.Conv2d(c, c, 3, padding=1)
        self.scale = scale

    def forward(self, x):
        return x + self.scale * self.b(F.relu(self.a(x)))


class EDSRTiny(nn.Module):
    def __init__(self, c=16, blocks=2):
        super().__init__()
        self.head = nn.Conv2d(3, c, 3, padding=1)
        self.blocks = nn.Sequential(*[ResBlock(c) for _ in range(blocks)])
        self.body = nn.Conv2d(c, c, 3, padding=1)
        self.up = nn.Conv2d(c, 3 * SCALE**2, 3, padding=1)

    def forward(self, x):
        x = x.permute(0, 3, 1, 2)
        head = self.head(x)
        h = self.body(self.blocks(head)) + head
        h = self.up(h)
        n, _, hh, ww = h.shape
        h = h.view(n, SCALE * SCALE, 3, hh, ww).transpose(1, 2)
        h = F.pixel_shuffle(h.reshape(n, 3 * SCALE * SCALE, hh, ww), SCALE)
        base = x.repeat_interleave(SCALE, dim=2).repeat_interleave(SCALE, dim=3)
        return (h + base).permute(0, 2, 3, 1)


def charbonnier(output, target):
    diff = output - target
    return torch.hypot(diff, torch.full_like(diff, 1e-3)).mean()


def build():
    return EDSRTiny()
