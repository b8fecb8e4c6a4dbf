import torch
from torch import nn
from torch.nn import functional as F


def pad_same(x, size, stride):
    """Pads (N, C, H, W) as TensorFlow's "same" does: the odd one goes to the end."""
    pads = []
    for length in reversed(x.shape[2:]):
        total = max((-(-length // stride) - 1) * stride + size - length, 0)
        pads += [total // 2, total - total // 2]
    return F.pad(x, pads)


class Norm(nn.BatchNorm2d):
    def __init__(self, channels):
        super().__init__(channels, eps=1e-3, momentum=0.1)

    def forward(self, x):
        if self.training:
            var, mean = torch.var_mean(x, (0, 2, 3), correction=0)
            with torch.no_grad():
                self.running_mean += self.momentum * (mean - self.running_mean)
                self.running_var += self.momentum * (var - self.running_var)
        else:
            mean, var = self.running_mean, self.running_var
        scale = self.weight * torch.rsqrt(var + self.eps)
        shift = self.bias - mean * scale
        return x * scale[:, None, None] + shift[:, None, None]


class SqueezeExcite(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.reduce = nn.Linear(channels, channels // 4)
        self.expand = nn.Linear(channels // 4, channels)

    def forward(self, x):
        scale = self.expand(F.relu(self.reduce(x.mean((2, 3))))).sigmoid()
        return x * scale[..., None, None]


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride=1):
        super().__init__()
        hidden = 2 * inputs
        self.stride = stride
        self.up = nn.Conv2d(inputs, hidden, 1, bias=False)
        self.up_norm = Norm(hidden)
        self.depthwise = nn.Conv2d(hidden, hidden, 5, stride, groups=hidden, bias=False)
        self.depthwise_norm = Norm(hidden)
        self.se = SqueezeExcite(hidden)
        self.down = nn.Conv2d(hidden, outputs, 1, bias=False)
        self.down_norm = Norm(outputs)
        self.drop = nn.Dropout2d(0.15) if stride == 1 and inputs == outputs else None

    def forward(self, x):
        y = F.silu(self.up_norm(self.up(x)))
        y = F.silu(self.depthwise_norm(self.depthwise(pad_same(y, 5, self.stride))))
        y = self.down_norm(self.down(self.se(y)))
        return y if self.drop is None else x + self.drop(y)


class Classifier(nn.Module):
    def __init__(self, classes=7):
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, 2, bias=False)
        self.stem_norm = Norm(16)
        self.blocks = nn.ModuleList([Block(16, 16), Block(16, 24, stride=2), Block(24, 24)])
        self.drop = nn.Dropout(0.3)
        self.head = nn.Linear(24 * 3 * 3, classes)

    def forward(self, image):
        x = image / 127.5 - 1.0
        x = F.silu(self.stem_norm(self.stem(pad_same(x, 3, 2))))
        for block in self.blocks:
            x = block(x)
        x = F.avg_pool2d(x, 2, ceil_mode=True)
        x = x.permute(0, 2, 3, 1).flatten(1)
        return self.head(self.drop(x))
