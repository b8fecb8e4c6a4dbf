from collections import OrderedDict

import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Sequential):
    def __init__(self, c_in, c_out, dilation=1):
        super().__init__(
            OrderedDict(
                conv0=nn.Conv1d(c_in, c_out, 5, padding=2 * dilation, dilation=dilation, bias=False),
                bn0=nn.BatchNorm1d(c_out, eps=1e-3, momentum=0.1),
                act0=nn.ReLU(),
                conv1=nn.Conv1d(c_out, c_out, 3, padding=1),
                act1=nn.LeakyReLU(0.1),
            )
        )
        for n, p in self.named_parameters():
            if n.startswith("conv"):
                nn.init.kaiming_normal_(p) if p.ndim > 1 else nn.init.zeros_(p)


class Up(nn.Module):
    def __init__(self, c_in, c_skip):
        super().__init__()
        self.up = nn.ConvTranspose1d(c_in, c_skip, 2, stride=2)
        self.block = Block(2 * c_skip, c_skip)

    def forward(self, x, skip):
        return self.block(torch.cat((self.up(x), skip), dim=1))


class ECGUNet(nn.Module):
    WINDOW = 49

    def __init__(self, widths=(12, 16, 24), leads=2, classes=4):
        super().__init__()
        a, b, c = widths
        self.down = nn.ModuleList([Block(leads, a), Block(a, b), Block(b, c, dilation=2)])
        self.ups = nn.ModuleList([Up(c, b), Up(b, a)])
        self.head = nn.Linear(a, classes)

    def forward(self, ecg):
        x = ecg.transpose(1, 2)
        x = x - F.avg_pool1d(x, self.WINDOW, stride=1, padding=self.WINDOW // 2)
        skips = []
        for i, block in enumerate(self.down):
            x = block(x if i == 0 else F.max_pool1d(x, 2))
            skips.append(x)
        skips.pop()
        for up in self.ups:
            x = up(x, skips.pop())
        return self.head(x.transpose(1, 2))


def build():
    return ECGUNet()


class DiceCE(nn.Module):
    def __init__(self, smooth=1.0):
        super().__init__()
        self.smooth = smooth
        self.register_buffer("weight", torch.tensor([0.5, 2.0, 1.5, 1.0]))

    def forward(self, logits, target):
        target = target.long()
        z = logits.movedim(-1, 1)
        ce = F.cross_entropy(z, target, weight=self.weight.to(z))
        p = z.softmax(1)
        t = torch.zeros_like(p).scatter_(1, target.unsqueeze(1), 1.0)
        dice = (2 * (p * t).sum(-1) + self.smooth) / ((p + t).sum(-1) + self.smooth)
        return ce + (1 - dice[:, 1:]).mean()


loss = DiceCE()
