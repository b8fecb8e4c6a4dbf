import torch
import torch.nn.functional as F
from torch import nn

CLASSES = 4
CLASS_WEIGHTS = (0.4, 1.0, 2.5, 4.0)


class KerasBatchNorm2d(nn.BatchNorm2d):
    """BatchNorm2d whose running variance is the biased batch variance, as in Keras."""

    def __init__(self, c):
        super().__init__(c, eps=1e-3, momentum=0.01)

    def forward(self, x):
        if not self.training:
            return super().forward(x)
        var, mean = torch.var_mean(x, dim=(0, 2, 3), correction=0)
        with torch.no_grad():
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(var, self.momentum)
            self.num_batches_tracked += 1
        x = (x - mean[:, None, None]) * torch.rsqrt(var + self.eps)[:, None, None]
        return x * self.weight[:, None, None] + self.bias[:, None, None]


class ConvBN(nn.Sequential):
    def __init__(self, cin, cout, dilation=1):
        super().__init__(
            nn.Conv2d(cin, cout, 3, padding=dilation, dilation=dilation, bias=False),
            KerasBatchNorm2d(cout),
            nn.ReLU6(),
        )


def down(x):
    # windows start at the top left; the last one hangs over the edge and
    # averages only what it sees, like TF's 'same'
    return F.avg_pool2d(x, 3, stride=2, ceil_mode=True, count_include_pad=False)


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc1 = ConvBN(3, 8)
        self.enc2 = ConvBN(8, 12)
        self.mid1 = ConvBN(12, 16)
        self.mid2 = ConvBN(16, 16, dilation=2)
        self.up2 = nn.ConvTranspose2d(16, 12, 3, stride=2)
        self.dec2 = ConvBN(24, 12)
        self.dec1 = ConvBN(20, 8)
        self.classes = nn.Conv2d(8, CLASSES, 1)

    def forward(self, x):
        e1 = self.enc1(x.permute(0, 3, 1, 2))
        e2 = self.enc2(down(e1))
        x = self.mid2(self.mid1(down(e2)))
        x = self.up2(x)[..., :-1, :-1]  # TF crops the extra row at the end
        x = self.dec2(torch.cat([x, e2], dim=1))
        x = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
        x = self.dec1(torch.cat([x, e1], dim=1))
        return self.classes(x).permute(0, 2, 3, 1)


def landcover_loss(y_pred, y_true):
    y = y_true.long()
    logits = y_pred.movedim(-1, 1)
    w = logits.new_tensor(CLASS_WEIGHTS)
    # not reduction='mean': that one divides by the sum of the weights
    ce = F.cross_entropy(logits, y, weight=w, reduction="none").mean()
    p = logits.softmax(1)
    hot = F.one_hot(y, CLASSES).movedim(-1, 1).to(p.dtype)
    tp = (p * hot).sum((2, 3))
    fp = p.sum((2, 3)) - tp
    fn = hot.sum((2, 3)) - tp
    return ce + (1 - (tp + 1) / (tp + 0.3 * fp + 0.7 * fn + 1)).mean()


def build():
    return UNet()
