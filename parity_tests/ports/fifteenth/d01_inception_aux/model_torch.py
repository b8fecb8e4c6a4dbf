import torch
from torch import nn
from torch.nn import functional as F

CLASSES = 6


class BatchNorm(nn.Module):
    """Keras's batch norm without gamma: epsilon 1e-3, biased moving variance."""

    def __init__(self, channels, eps=1e-3, keep=0.9):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))
        self.eps, self.keep = eps, keep

    def forward(self, x):
        if self.training:
            var, mean = torch.var_mean(x, (0, 2, 3), correction=0)
            with torch.no_grad():
                self.running_mean.lerp_(mean, 1 - self.keep)
                self.running_var.lerp_(var, 1 - self.keep)
        else:
            mean, var = self.running_mean, self.running_var
        scale = torch.rsqrt(var + self.eps)
        return x * scale[:, None, None] + (self.bias - mean * scale)[:, None, None]


def conv_bn(inputs, outputs, size, stride=1):
    pad = nn.Identity() if stride == 1 else nn.ZeroPad2d((2, 3, 2, 3))
    padding = size // 2 if stride == 1 else 0
    conv = nn.Conv2d(inputs, outputs, size, stride, padding, bias=False)
    return nn.Sequential(pad, conv, BatchNorm(outputs), nn.ReLU(inplace=True))


class Inception(nn.Module):
    def __init__(self, inputs, one, reduce3, three, reduce5, five, pool):
        super().__init__()
        self.branches = nn.ModuleList(
            [
                conv_bn(inputs, one, 1),
                nn.Sequential(conv_bn(inputs, reduce3, 1), conv_bn(reduce3, three, 3)),
                nn.Sequential(conv_bn(inputs, reduce5, 1), conv_bn(reduce5, five, 5)),
                nn.Sequential(nn.MaxPool2d(3, 1, 1), conv_bn(inputs, pool, 1)),
            ]
        )

    def forward(self, x):
        return torch.cat([branch(x) for branch in self.branches], 1)


class LeafNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(conv_bn(3, 8, 7, 2), nn.MaxPool2d(3, 2, ceil_mode=True))
        self.low = Inception(8, 8, 6, 8, 4, 4, 4)
        self.high = nn.Sequential(Inception(24, 8, 8, 12, 4, 6, 6), Inception(32, 12, 8, 16, 4, 8, 8))
        self.aux_features = nn.Sequential(nn.AvgPool2d(3, 2, ceil_mode=True), conv_bn(24, 8, 1))
        self.aux_head = nn.Sequential(
            nn.Flatten(), nn.Linear(72, 24), nn.ReLU(), nn.Dropout(0.5), nn.Linear(24, CLASSES)
        )
        self.head = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.4), nn.Linear(44, CLASSES)
        )

    def forward(self, x):
        x = self.low(self.stem(x))
        return self.head(self.high(x)), self.aux_head(self.aux_features(x))


def loss(outputs, y):
    main, aux = outputs
    y = y.long().flatten()
    smooth = {"label_smoothing": 0.1}
    return F.cross_entropy(main, y, **smooth) + 0.3 * F.cross_entropy(aux, y, **smooth)


def step(model, batch):
    x, y = batch
    return loss(model(x), y)
