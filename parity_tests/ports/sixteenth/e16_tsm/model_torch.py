import torch
import torch.nn.functional as F
from torch import nn


class BatchNorm(nn.BatchNorm2d):
    def __init__(self, channels):
        super().__init__(channels, eps=1e-4, momentum=0.05)

    def forward(self, x):
        if not self.training:
            return super().forward(x)
        with torch.no_grad():  # Keras's statistics
            self.running_mean.lerp_(x.mean((0, 2, 3)), self.momentum)
            self.running_var.lerp_(x.var((0, 2, 3), unbiased=False), self.momentum)
        return F.batch_norm(x, None, None, self.weight, self.bias, True, 0.0, self.eps)


def shift(x, frames, share=8):
    clips = x.unflatten(0, (-1, frames))
    fold = clips.shape[2] // share
    shifted = clips.clone()
    shifted[:, :, : 2 * fold] = 0
    shifted[:, :-1, :fold] = clips[:, 1:, :fold]
    shifted[:, 1:, fold : 2 * fold] = clips[:, :-1, fold : 2 * fold]
    return shifted.flatten(0, 1)


class Residual(nn.Module):
    def __init__(self, inputs, outputs, stride, frames):
        super().__init__()
        self.frames, self.stride = frames, stride
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=0 if stride > 1 else 1, bias=False)
        self.bn1 = BatchNorm(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = BatchNorm(outputs)
        self.down = None
        if stride > 1:
            self.down = nn.Sequential(
                nn.AvgPool2d(stride), nn.Conv2d(inputs, outputs, 1, bias=False), BatchNorm(outputs)
            )

    def forward(self, x):
        y = shift(x, self.frames)
        if self.stride > 1:
            y = F.pad(y, (0, 1, 0, 1))
        y = F.relu6(self.bn1(self.conv1(y)))
        y = self.bn2(self.conv2(y))
        return F.relu(y + (x if self.down is None else self.down(x)))


class GestureNet(nn.Module):
    def __init__(self, frames=5, gestures=4):
        super().__init__()
        self.frames = frames
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1, bias=False), BatchNorm(16), nn.ReLU6())
        self.blocks = nn.Sequential(Residual(16, 16, 1, frames), Residual(16, 24, 2, frames))
        self.drop = nn.Dropout(0.3)
        self.classify = nn.Linear(24, gestures)

    def forward(self, clip):
        """Clips are (batch, channels, frames, height, width), of 0 to 255."""
        x = clip.transpose(1, 2).flatten(0, 1) / 128 - 1
        x = self.blocks(self.stem(x)).mean((2, 3))
        return self.classify(self.drop(x)).unflatten(0, (-1, self.frames)).mean(1)


class VelocitySGD(torch.optim.Optimizer):
    """Momentum whose velocity holds the rate it was made with, so a new rate works slowly, as in Keras."""

    def __init__(self, params, lr, momentum):
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                velocity = self.state[p].setdefault("velocity", torch.zeros_like(p))
                velocity.mul_(group["momentum"]).sub_(p.grad, alpha=group["lr"])
                p.add_(velocity)


def optimizer(model):
    optimizer = VelocitySGD(model.parameters(), lr=0.0625, momentum=0.875)
    # Keras keeps a rate up to and including the step of its boundary
    return optimizer, torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[8, 15], gamma=0.25)
