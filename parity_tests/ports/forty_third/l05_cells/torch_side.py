import torch
from torch import nn
from torch.nn import functional as F


def block(i, o):
    layers = []
    for a in (i, o):
        layers += [
            nn.Conv2d(a, o, kernel_size=3, padding="same", bias=False),
            nn.BatchNorm2d(o, eps=0.001, momentum=0.01),
            nn.SiLU(inplace=True),
        ]
    return nn.Sequential(*layers)


class Gate(nn.Module):
    def __init__(self, c_skip, c_gate, c_mid):
        super().__init__()
        self.skip = nn.Conv2d(c_skip, c_mid, 1, stride=2, bias=False)
        self.gate = nn.Conv2d(c_gate, c_mid, 1)
        self.psi = nn.Sequential(
            nn.Softplus(),
            nn.Conv2d(c_mid, 1, 1),
            nn.Sigmoid(),
            nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False),
        )
        self.out = nn.Sequential(
            nn.Conv2d(c_skip, c_skip, 1), nn.BatchNorm2d(c_skip, eps=0.001, momentum=0.01)
        )

    def forward(self, s, g):
        return self.out(s * self.psi(self.skip(s) + self.gate(g)))


class AttentionUNet(nn.Module):
    def __init__(self, widths=(8, 12, 16), mids=(6, 8)):
        super().__init__()
        self.down = nn.ModuleList(
            [block(1, widths[0]), block(widths[0], widths[1]), block(widths[1], widths[2])]
        )
        self.gates = nn.ModuleList([Gate(widths[0], widths[1], mids[0]), Gate(widths[1], widths[2], mids[1])])
        self.up = nn.ModuleList(
            [nn.ConvTranspose2d(widths[1], widths[0], 2, 2), nn.ConvTranspose2d(widths[2], widths[1], 2, 2)]
        )
        self.fuse = nn.ModuleList([block(2 * widths[0], widths[0]), block(2 * widths[1], widths[1])])
        self.heads = nn.Conv2d(widths[0], 2, 1)  # mask, distance

    def forward(self, image):
        x = image.permute(0, 3, 1, 2)
        skips = []
        for i, enc in enumerate(self.down):
            x = enc(x if i == 0 else F.max_pool2d(x, 2))
            skips.append(x)
        for level in (1, 0):
            x = self.fuse[level](torch.cat([self.up[level](x), self.gates[level](skips[level], x)], dim=1))
        mask, dist = self.heads(x).permute(0, 2, 3, 1).split(1, dim=-1)
        return {"mask": mask, "dist": dist.sigmoid()}


def mask_loss(logits, y):
    y = y.to(logits.dtype)
    ce = F.binary_cross_entropy_with_logits(logits, y)
    p, y = logits.sigmoid().flatten(1), y.flatten(1)
    dice = (2 * (p * y).sum(1) + 1) / (p.sum(1) + y.sum(1) + 1)
    return ce + (1 - dice).mean()


def dist_loss(pred, y):
    return F.smooth_l1_loss(pred, y, beta=0.2)


def build():
    return AttentionUNet()
