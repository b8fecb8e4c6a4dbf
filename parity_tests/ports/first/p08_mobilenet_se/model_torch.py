import torch
from torch import nn
from torch.nn import functional as F


class BatchNorm(nn.BatchNorm2d):
    def __init__(self, channels):
        super().__init__(channels, eps=1e-3, momentum=0.05)

    def forward(self, x):
        if not self.training:
            return super().forward(x)
        with torch.no_grad():  # the running variance of Keras is the biased one
            self.running_mean.lerp_(x.mean((0, 2, 3)), self.momentum)
            self.running_var.lerp_(x.var((0, 2, 3), unbiased=False), self.momentum)
        return F.batch_norm(x, None, None, self.weight, self.bias, True, 0.0, self.eps)


class SqueezeExcite(nn.Module):
    """With 1x1 convolutions, as torchvision has it."""

    def __init__(self, channels, reduced):
        super().__init__()
        self.fc1 = nn.Conv2d(channels, reduced, 1)
        self.fc2 = nn.Conv2d(reduced, channels, 1)

    def forward(self, x):
        s = F.adaptive_avg_pool2d(x, 1)
        return x * F.hardsigmoid(self.fc2(F.relu(self.fc1(s))))


class Residual(nn.Sequential):
    def forward(self, x):
        return x + super().forward(x)


def inverted_residual(cin, expand, cout, stride):
    kind = Residual if stride == 1 and cin == cout else nn.Sequential
    return kind(
        nn.Conv2d(cin, expand, 1, bias=False),
        BatchNorm(expand),
        nn.SiLU(),
        nn.ZeroPad2d((0, 1, 0, 1) if stride == 2 else 1),
        nn.Conv2d(expand, expand, 3, stride, groups=expand, bias=False),
        BatchNorm(expand),
        nn.SiLU(),
        SqueezeExcite(expand, expand // 4),
        nn.Conv2d(expand, cout, 1, bias=False),
        BatchNorm(cout),
    )


def mobilenet():
    return nn.Sequential(
        nn.ZeroPad2d((0, 1, 0, 1)),
        nn.Conv2d(3, 8, 3, 2, bias=False),
        BatchNorm(8),
        nn.ReLU6(),
        inverted_residual(8, 16, 8, 1),
        inverted_residual(8, 24, 16, 2),
        inverted_residual(16, 48, 16, 1),
        inverted_residual(16, 48, 24, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(24, 10),
    )
