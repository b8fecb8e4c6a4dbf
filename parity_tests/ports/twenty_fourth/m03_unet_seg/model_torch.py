"""U-Net for weld-seam tiles. Takes NCHW, returns NHWC logits like the service."""

import torch
import torch.nn.functional as F
from torch import nn

CLASSES = 3
DICE_SMOOTH = 1.0


class BatchNorm(nn.Module):
    """Batch norm whose running variance is the plain (population) variance."""

    def __init__(self, channels, decay=0.9, eps=1e-3):
        super().__init__()
        self.decay = decay
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))

    def forward(self, x):
        if self.training:
            mean = x.mean(dim=(0, 2, 3))
            var = (x - mean[:, None, None]).square().mean(dim=(0, 2, 3))
            with torch.no_grad():
                self.running_mean += (1 - self.decay) * (mean - self.running_mean)
                self.running_var += (1 - self.decay) * (var - self.running_var)
        else:
            mean, var = self.running_mean, self.running_var
        scale = self.weight / torch.sqrt(var + self.eps)
        shift = self.bias - mean * scale
        return x * scale[:, None, None] + shift[:, None, None]


class ConvUnit(nn.Module):
    def __init__(self, n_in, n_out, halve=False):
        super().__init__()
        self.halve = halve
        self.conv = nn.Conv2d(
            n_in,
            n_out,
            3,
            stride=2 if halve else 1,
            padding=0 if halve else 1,
            bias=False,
        )
        self.norm = BatchNorm(n_out)

    def forward(self, x):
        if self.halve:
            x = F.pad(x, (0, 1, 0, 1))
        return F.elu(self.norm(self.conv(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc1 = ConvUnit(2, 8)
        self.down1 = ConvUnit(8, 12, halve=True)
        self.enc2 = ConvUnit(12, 12)
        self.down2 = ConvUnit(12, 16, halve=True)
        self.dec2 = ConvUnit(16 + 12, 12)
        self.up1 = nn.ConvTranspose2d(12, 8, kernel_size=2, stride=2)
        self.dec1 = ConvUnit(8 + 8, 8)
        self.logits = nn.Conv2d(8, CLASSES, 1)

    def forward(self, image):
        s1 = self.enc1(image)
        s2 = self.enc2(self.down1(s1))
        x = self.down2(s2)
        x = x.repeat_interleave(2, dim=-2).repeat_interleave(2, dim=-1)
        x = self.dec2(torch.cat((x, s2), dim=1))
        x = self.dec1(torch.cat((self.up1(x), s1), dim=1))
        return self.logits(x).permute(0, 2, 3, 1)


def loss(outputs, targets):
    """Cross entropy plus soft Dice; outputs (B,H,W,C), targets (B,H,W)."""
    labels = targets.long().reshape(outputs.shape[:3])
    scores = outputs.movedim(-1, 1)
    ce = F.cross_entropy(scores, labels)

    p = scores.softmax(dim=1).flatten(2)
    onehot = F.one_hot(labels.flatten(1), CLASSES).to(p.dtype).mT
    overlap = (p * onehot).sum(-1)
    total = (p + onehot).sum(-1)
    dice = (2 * overlap + DICE_SMOOTH) / (total + DICE_SMOOTH)
    return ce + (1 - dice).mean()
