import math

import torch
import torch.nn.functional as F
from torch import nn


class BatchNorm(nn.Module):
    def __init__(self, channels, rate=0.1, eps=1e-3):
        super().__init__()
        self.rate, self.eps = rate, eps
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))

    def forward(self, x):
        mean, var = self.running_mean, self.running_var
        if self.training:
            var, mean = torch.var_mean(x, dim=(0, 2, 3), correction=0)
            self.running_mean.lerp_(mean.detach(), self.rate)
            self.running_var.lerp_(var.detach(), self.rate)
        scale = self.weight * torch.rsqrt(var + self.eps)
        return x * scale[:, None, None] + (self.bias - mean * scale)[:, None, None]


class Down(nn.Sequential):
    def __init__(self, c_in, c_out):
        super().__init__(
            nn.ZeroPad2d((0, 1, 0, 1)),
            nn.Conv2d(c_in, c_out, 3, 2, bias=False),
            BatchNorm(c_out),
            nn.LeakyReLU(0.3),
        )


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(Down(2, 12), Down(12, 20))
        self.squeeze = nn.Linear(180, 24)
        self.expand = nn.Linear(24, 180)
        self.up1 = nn.ConvTranspose2d(20, 12, 3, 2, bias=False)
        self.norm = BatchNorm(12)
        self.up2 = nn.ConvTranspose2d(12, 8, 3, 2, bias=False)
        self.act = nn.PReLU(8)
        self.out = nn.Conv2d(8, 2, 1)

    def forward(self, sky):
        x = self.down(sky.permute(0, 3, 1, 2)).flatten(1)
        x = self.expand(torch.tanh(self.squeeze(x))).view(-1, 20, 3, 3)
        x = F.leaky_relu(self.norm(self.up1(x)[:, :, :6, :6]), 0.3)
        x = self.act(self.up2(x)[:, :, :12, :12])
        return self.out(x).permute(0, 2, 3, 1)


class Nesterov(torch.optim.Optimizer):
    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            lr, mu = group["lr"], group["momentum"]
            for p in group["params"]:
                grad = p.grad + group["decay"] * p
                v = self.state[p].setdefault("velocity", torch.zeros_like(p))
                v.mul_(mu).sub_(lr * grad)
                p.add_(mu * v - lr * grad)


def rate(t):
    if t < 5:
        return 0.01 + (0.08 - 0.01) * t / 5
    wave = 0.5 * (1 + math.cos(math.pi * min(t - 5, 30) / 30))
    return 0.08 * (0.9 * wave + 0.1)


def optimizer(params):
    params = list(params)
    groups = [
        {"params": [p for p in params if p.dim() > 1], "decay": 1e-3},
        {"params": [p for p in params if p.dim() <= 1], "decay": 0.0},
    ]
    opt = Nesterov(groups, dict(lr=1.0, momentum=0.9))
    return opt, torch.optim.lr_scheduler.LambdaLR(opt, rate)
