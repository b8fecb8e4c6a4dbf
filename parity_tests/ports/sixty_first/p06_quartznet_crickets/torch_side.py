import torch
import torch.nn as nn


def norm(c):
    return nn.BatchNorm1d(c, eps=1e-3, momentum=0.05)


class TCS(nn.Sequential):
    """Time-channel separable convolution with batch norm."""

    def __init__(self, c_in, c_out, k, dilation=1):
        super().__init__(
            nn.Conv1d(
                c_in, c_in, k, padding=dilation * (k - 1) // 2, dilation=dilation, groups=c_in, bias=False
            ),
            nn.Conv1d(c_in, c_out, 1, bias=False),
            norm(c_out),
        )


class Block(nn.Module):
    def __init__(self, c_in, c_out, k, repeats=2):
        super().__init__()
        mods = []
        for i in range(repeats):
            mods += [TCS(c_in if i == 0 else c_out, c_out, k), nn.ReLU()]
        self.trunk = nn.Sequential(*mods[:-1])
        self.residual = nn.Sequential(nn.Conv1d(c_in, c_out, 1, bias=False), norm(c_out))

    def forward(self, x):
        return torch.relu(self.trunk(x) + self.residual(x))


class QuartzNet(nn.Module):
    CONFIG = ((24, 24, 5), (24, 24, 7), (24, 32, 9))

    def __init__(self, n_mels=20, n_classes=6):
        super().__init__()
        self.c1 = nn.Sequential(
            nn.ConstantPad1d((1, 2), 0.0), nn.Conv1d(n_mels, 24, 5, 2, bias=False), norm(24), nn.ReLU()
        )
        self.blocks = nn.Sequential(*(Block(*c) for c in self.CONFIG))
        self.c2 = nn.Sequential(TCS(32, 32, 5, dilation=2), nn.ReLU())
        self.c3 = nn.Sequential(nn.Conv1d(32, 40, 1, bias=False), norm(40), nn.ReLU())
        self.decoder = nn.Sequential(nn.Linear(80, 24), nn.Tanh(), nn.Linear(24, n_classes))

    def forward(self, mel):
        h = self.c3(self.c2(self.blocks(self.c1(mel.mT))))
        centred = h - h.mean(-1, keepdim=True)
        spread = torch.sqrt(centred.square().mean(-1) + 1e-5)
        return self.decoder(torch.cat([h.mean(-1), spread], dim=1))


def build():
    return QuartzNet()
