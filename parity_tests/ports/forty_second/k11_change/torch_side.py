import torch
import torch.nn as nn
import torch.nn.functional as F


class ConvBnReLU(nn.Sequential):
    def __init__(self, c_in, c_out):
        super().__init__(
            nn.Conv2d(c_in, c_out, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(c_out, eps=1e-5, momentum=0.05),
            nn.ReLU(inplace=True),
        )
        nn.init.kaiming_normal_(self[0].weight)


class Up(nn.Module):
    def __init__(self, c_in, c_out):
        super().__init__()
        self.grow = nn.ConvTranspose2d(c_in, c_out, 2, 2)
        self.fuse = ConvBnReLU(2 * c_out, c_out)

    def forward(self, x, skip):
        return self.fuse(torch.cat([self.grow(x), skip], dim=1))


class SiamDiff(nn.Module):
    def __init__(self, widths=(12, 20, 28)):
        super().__init__()
        a, b, c = widths
        self.register_buffer("gain", torch.tensor([8.0, 7.0, 6.0, 3.0]).reshape(1, 4, 1, 1))
        self.ups = nn.ModuleList([Up(c, b), Up(b, a)])
        self.levels = nn.ModuleList([ConvBnReLU(6, a), ConvBnReLU(a, b), ConvBnReLU(b, c)])
        self.bridge = nn.Conv2d(c, c, 1)
        self.head = nn.Conv2d(a, 1, 1)

    def with_indices(self, x):
        _, g, r, n = x.split(1, dim=1)
        return torch.cat([x * self.gain, (n - r) / (n + r + 0.01), (g - n) / (g + n + 0.01)], dim=1)

    def encode(self, x):
        feats = []
        x = self.with_indices(x)
        for i, level in enumerate(self.levels):
            x = level(F.max_pool2d(x, 2) if i else x)
            feats.append(x)
        return feats

    def forward(self, before, after):
        pair = torch.cat([before, after], dim=0).permute(0, 3, 1, 2)
        diffs = []
        for f in self.encode(pair):
            f0, f1 = f.chunk(2, dim=0)
            diffs.append((f0 - f1).abs())
        x = F.relu(self.bridge(diffs.pop()))
        for up in self.ups:
            x = up(x, diffs.pop())
        return self.head(x).permute(0, 2, 3, 1)


def bce_dice(logit, y):
    y = y.to(logit.dtype)
    bce = F.binary_cross_entropy_with_logits(logit, y, pos_weight=logit.new_tensor(2.0))
    p, y = logit.sigmoid().flatten(1), y.flatten(1)
    dice = (2 * (p * y).sum(1) + 1) / (p.sum(1) + y.sum(1) + 1)
    return (bce + 1 - dice.mean()) / 2


def build():
    return SiamDiff()
