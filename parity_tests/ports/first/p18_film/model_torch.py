import torch
from torch import nn
from torch.nn import functional as F


class BatchNorm(nn.BatchNorm2d):
    def __init__(self, channels, affine=True):
        super().__init__(channels, eps=1e-3, momentum=0.01, affine=affine)

    def forward(self, x):
        if not self.training:
            return super().forward(x)
        with torch.no_grad():  # biased variance, as Keras stores it
            self.running_mean.lerp_(x.mean((0, 2, 3)), self.momentum)
            self.running_var.lerp_(x.var((0, 2, 3), unbiased=False), self.momentum)
        return F.batch_norm(x, None, None, self.weight, self.bias, True, 0.0, self.eps)


class FiLMBlock(nn.Module):
    def __init__(self, channels, condition):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)
        self.bn = BatchNorm(channels, affine=False)
        self.generator = nn.Linear(condition, 2 * channels)

    def forward(self, x, condition):
        beta, gamma = self.generator(condition)[:, :, None, None].chunk(2, dim=1)
        return x + F.relu(gamma * self.bn(self.conv(x)) + beta)


class FiLMNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.condition = nn.Linear(6, 24)
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), BatchNorm(16), nn.MaxPool2d(2))
        self.blocks = nn.ModuleList([FiLMBlock(16, 24), FiLMBlock(16, 24)])
        self.answer = nn.Linear(16, 4)

    def forward(self, image, question):
        condition = F.relu(self.condition(question))
        x = self.stem(image)
        for block in self.blocks:
            x = block(x, condition)
        return self.answer(x.amax((2, 3)))
