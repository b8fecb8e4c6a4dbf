import torch
import torch.nn as nn
import torch.nn.functional as F


class BatchNorm2d(nn.BatchNorm2d):
    """Keeps the biased variance, as the original does."""

    def forward(self, x):
        if not self.training:
            return super().forward(x)
        var, mean = torch.var_mean(x.detach(), dim=(0, 2, 3), correction=0)
        self.running_mean.lerp_(mean, self.momentum)
        self.running_var.lerp_(var, self.momentum)
        return F.batch_norm(x, None, None, self.weight, self.bias, training=True, eps=self.eps)


class ResidualStage(nn.Module):
    def __init__(self, c_in, c_out):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(c_in, c_out, 3, padding=1, bias=False),
            BatchNorm2d(c_out),
            nn.ReLU(inplace=True),
            nn.Conv2d(c_out, c_out, 3, padding=1, bias=False),
            BatchNorm2d(c_out),
        )
        self.shortcut = nn.Conv2d(c_in, c_out, 1)

    def forward(self, x):
        return F.relu(self.body(x) + self.shortcut(x))


class Net(nn.Module):
    def __init__(self, c_in=1):
        super().__init__()
        self.enc1, self.enc2 = ResidualStage(c_in, 8), ResidualStage(8, 16)
        self.mid = ResidualStage(16, 24)
        self.up2 = nn.ConvTranspose2d(24, 16, 3, stride=2, padding=1, output_padding=1)
        self.dec2 = ResidualStage(32, 16)
        self.up1 = nn.ConvTranspose2d(16, 8, 3, stride=2, padding=1, output_padding=1)
        self.dec1 = ResidualStage(16, 8)
        self.head = nn.Conv2d(8, 1, 1)

    def forward(self, x):
        e1 = self.enc1(x)
        e2 = self.enc2(F.max_pool2d(e1, 2))
        m = self.mid(F.max_pool2d(e2, 2))
        d2 = self.dec2(torch.cat([e2, self.up2(m)], dim=1))
        d1 = self.dec1(torch.cat([e1, self.up1(d2)], dim=1))
        return self.head(d1)


def loss(logits, masks):
    masks = masks.to(logits)
    bce = F.binary_cross_entropy_with_logits(logits, masks)
    p = logits.sigmoid()
    dice = (2 * (p * masks).sum() + 1) / (p.sum() + masks.sum() + 1)
    return bce + 1 - dice
