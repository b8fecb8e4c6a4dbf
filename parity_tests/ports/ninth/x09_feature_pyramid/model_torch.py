import torch
import torch.nn.functional as F
from torch import nn


class Norm(nn.Module):
    def __init__(self, channels, momentum=0.9, eps=1e-3):
        super().__init__()
        self.momentum, self.eps = momentum, eps
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))

    def forward(self, x):
        if self.training:
            var, mean = torch.var_mean(x, dim=(0, 2, 3), unbiased=False)
            self.running_mean.lerp_(mean.detach(), self.momentum)
            self.running_var.lerp_(var.detach(), self.momentum)
        else:
            mean, var = self.running_mean, self.running_var
        scale = self.weight * torch.rsqrt(var + self.eps)
        shift = self.bias - mean * scale
        return torch.addcmul(shift[:, None, None], x, scale[:, None, None])


class Stage(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, stride=2, bias=False)
        self.bn = Norm(outputs)

    def forward(self, x):
        return F.relu(self.bn(self.conv(F.pad(x, (0, 1, 0, 1)))))


def up(x):
    return F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)


class Net(nn.Module):
    def __init__(self, classes=5, width=8):
        super().__init__()
        self.c2, self.c3, self.c4 = Stage(3, 6), Stage(6, 10), Stage(10, 14)
        self.lateral = nn.ModuleList([nn.Conv2d(c, width, 1) for c in (6, 10, 14)])
        self.smooth = nn.ModuleList([nn.Conv2d(width, width, 3, padding=1) for _ in range(3)])
        self.heat_head = nn.Conv2d(width, 2, 1)
        self.label_head = nn.Linear(3 * width, classes)

    def forward(self, x):
        c2 = self.c2(x)
        c3 = self.c3(c2)
        c4 = self.c4(c3)
        m4 = self.lateral[2](c4)
        p4 = self.smooth[2](m4)
        m3 = self.lateral[1](c3) + up(m4)
        p3 = self.smooth[1](m3)
        m2 = self.lateral[0](c2) + up(p3)
        p2 = self.smooth[0](m2)
        pooled = torch.cat([p.mean((2, 3)) for p in (p2, p3, p4)], dim=1)
        return {"label": self.label_head(pooled), "heat": self.heat_head(F.relu(p2))}
