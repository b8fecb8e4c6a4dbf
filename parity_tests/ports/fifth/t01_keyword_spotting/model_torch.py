import torch
from torch import nn
from torch.nn import functional as F


def same_pad(x, size, stride=1, dilation=1):
    """Pads (batch, channels, time) as TensorFlow's SAME does."""
    length = x.shape[-1]
    total = max((-(-length // stride) - 1) * stride + (size - 1) * dilation + 1 - length, 0)
    return F.pad(x, (total // 2, total - total // 2))


class Norm(nn.Module):
    def __init__(self, channels, eps=1e-3, momentum=0.95):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(channels))
        self.shift = nn.Parameter(torch.zeros(channels))
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("var", torch.ones(channels))
        self.eps, self.momentum = eps, momentum

    def forward(self, x):
        if self.training:
            mean = x.mean((0, 2))
            var = x.var((0, 2), unbiased=False)
            with torch.no_grad():
                self.mean.mul_(self.momentum).add_(mean, alpha=1 - self.momentum)
                self.var.mul_(self.momentum).add_(var, alpha=1 - self.momentum)
        else:
            mean, var = self.mean, self.var
        scale = self.gain * torch.rsqrt(var + self.eps)
        return x * scale[:, None] + (self.shift - mean * scale)[:, None]


class Block(nn.Module):
    def __init__(self, inputs, outputs, size, stride, dilation):
        super().__init__()
        self.size, self.stride, self.dilation = size, stride, dilation
        self.depthwise = nn.Conv1d(inputs, inputs, size, stride, dilation=dilation, groups=inputs, bias=False)
        self.pointwise = nn.Conv1d(inputs, outputs, 1, bias=False)
        self.norm = Norm(outputs)
        self.reduce = nn.Conv1d(outputs, outputs // 4, 1)
        self.expand = nn.Conv1d(outputs // 4, outputs, 1)
        self.project = (
            nn.Conv1d(inputs, outputs, 1, stride) if stride > 1 or inputs != outputs else nn.Identity()
        )
        self.drop = nn.Dropout1d(0.1)

    def forward(self, x):
        y = self.depthwise(same_pad(x, self.size, self.stride, self.dilation))
        y = F.silu(self.norm(self.pointwise(y)))
        gate = self.expand(F.silu(self.reduce(y.mean(-1, keepdim=True)))).sigmoid()
        return self.drop(y * gate) + self.project(x)


class Net(nn.Module):
    """Takes (batch, mels, frames)."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv1d(20, 24, 5, padding=2, bias=False)
        self.stem_norm = Norm(24)
        self.blocks = nn.Sequential(Block(24, 32, 4, 2, 1), Block(32, 32, 3, 1, 2), Block(32, 48, 5, 2, 1))
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(48, 8)

    def forward(self, mel):
        x = F.silu(self.stem_norm(self.stem(mel)))
        x = self.blocks(x).amax(-1)
        return self.head(self.drop(x))
