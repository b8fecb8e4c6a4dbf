import torch
from torch import nn
from torch.nn import functional as F


class BatchNorm2d(nn.BatchNorm2d):
    """As Keras has it: eps 1e-3, and a running variance that isn't corrected for the sample size."""

    def __init__(self, num_features):
        super().__init__(num_features, eps=1e-3, momentum=0.1)

    def forward(self, x):
        if not self.training:
            return super().forward(x)
        with torch.no_grad():
            var, mean = torch.var_mean(x, dim=(0, 2, 3), correction=0)
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(var, self.momentum)
        return F.batch_norm(x, None, None, self.weight, self.bias, True, 0.0, self.eps)


class Involution(nn.Module):
    def __init__(self, channels, kernel_size=3, groups=4, reduction=2):
        super().__init__()
        self.kernel_size, self.groups = kernel_size, groups
        self.make_kernel = nn.Sequential(
            nn.Conv2d(channels, channels // reduction, 1, bias=False),
            BatchNorm2d(channels // reduction),
            nn.ReLU(inplace=True),
            nn.Conv2d(channels // reduction, kernel_size**2 * groups, 1),
        )

    def forward(self, x):
        b, c, h, w = x.shape
        kk, g = self.kernel_size**2, self.groups
        weight = self.make_kernel(x).view(b, kk, g, 1, h * w)
        patches = F.unfold(x, self.kernel_size, padding=self.kernel_size // 2).view(b, g, c // g, kk, h * w)
        out = torch.einsum("bkgdn,bgckn->bgcn", weight, patches)
        return out.reshape(b, c, h, w)


class Bottleneck(nn.Module):
    def __init__(self, inplanes, planes):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inplanes, planes, 1, bias=False),
            BatchNorm2d(planes),
            nn.ReLU(inplace=True),
            Involution(planes),
            BatchNorm2d(planes),
            nn.ReLU(inplace=True),
            nn.Conv2d(planes, inplanes, 1, bias=False),
            BatchNorm2d(inplanes),
        )

    def forward(self, x):
        return F.relu_(self.body(x).add_(x))


class Net(nn.Sequential):
    def __init__(self):
        super().__init__(
            nn.Conv2d(1, 24, 3, padding=1, bias=False),
            BatchNorm2d(24),
            nn.ReLU(inplace=True),
            Bottleneck(24, 16),
            nn.MaxPool2d(2),
            Bottleneck(24, 16),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Dropout(0.2),
            nn.Linear(24, 10),
        )

    def forward(self, x):
        return super().forward(x)
