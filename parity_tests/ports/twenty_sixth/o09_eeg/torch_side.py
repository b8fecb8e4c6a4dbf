import torch
import torch.nn.functional as F
from torch import nn

CHANS, SAMPLES, CLASSES = 8, 62, 4
F1, D, F2 = 4, 2, 8


class BatchNorm(nn.Module):
    """keras.layers.BatchNormalization on NCHW (population variance in the moving average)."""

    def __init__(self, c, eps=1e-3, momentum=0.99):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(c))
        self.bias = nn.Parameter(torch.zeros(c))
        self.register_buffer("running_mean", torch.zeros(c))
        self.register_buffer("running_var", torch.ones(c))
        self.eps, self.momentum = eps, momentum

    def forward(self, x):
        if self.training:
            var, mean = torch.var_mean(x, dim=(0, 2, 3), correction=0)
            with torch.no_grad():
                self.running_mean.lerp_(mean, 1 - self.momentum)
                self.running_var.lerp_(var, 1 - self.momentum)
        else:
            mean, var = self.running_mean, self.running_var
        scale = self.weight * torch.rsqrt(var + self.eps)
        return x * scale[:, None, None] + (self.bias - mean * scale)[:, None, None]


class EEGNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.temporal = nn.Conv2d(1, F1, (1, 16), padding="same", bias=False)
        self.bn1 = BatchNorm(F1)
        self.spatial = nn.Conv2d(F1, F1 * D, (CHANS, 1), groups=F1, bias=False)
        self.bn2 = BatchNorm(F1 * D)
        self.pool1 = nn.AvgPool2d((1, 4), padding=(0, 1))
        self.drop = nn.Dropout(0.25)
        self.depthwise = nn.Conv2d(F1 * D, F1 * D, (1, 8), padding="same", groups=F1 * D, bias=False)
        self.pointwise = nn.Conv2d(F1 * D, F2, 1, bias=False)
        self.bn3 = BatchNorm(F2)
        self.pool2 = nn.AvgPool2d((1, 4))
        self.logits = nn.Linear(4 * F2, CLASSES)

    def forward(self, x):
        x = x.permute(0, 3, 1, 2)
        h = self.bn1(self.temporal(x))
        h = F.elu(self.bn2(self.spatial(h)))
        h = self.drop(self.pool1(h))
        h = F.elu(self.bn3(self.pointwise(self.depthwise(h))))
        h = self.pool2(h)
        return self.logits(h.permute(0, 2, 3, 1).flatten(1))


def build():
    return EEGNet()
