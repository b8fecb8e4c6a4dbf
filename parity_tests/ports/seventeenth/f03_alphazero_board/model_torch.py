"""AlphaZero's network, its loss and its optimizer in PyTorch."""

import torch
from torch import nn
from torch.nn import functional as F


class BatchNorm(nn.BatchNorm2d):
    """Keeps the variance over N, as Keras does."""

    def forward(self, x):
        if not self.training:
            return super().forward(x)
        with torch.no_grad():
            self.running_mean.lerp_(x.mean((0, 2, 3)), self.momentum)
            self.running_var.lerp_(x.var((0, 2, 3), unbiased=False), self.momentum)
        return F.batch_norm(x, None, None, self.weight, self.bias, True, 0.0, self.eps)


def conv(inputs, outputs, size):
    return nn.Sequential(nn.Conv2d(inputs, outputs, size, padding=size // 2, bias=False), BatchNorm(outputs))


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.a = conv(channels, channels, 3)
        self.b = conv(channels, channels, 3)

    def forward(self, x):
        return F.relu(x + self.b(F.relu(self.a(x))))


class Net(nn.Module):
    def __init__(self, channels=16, blocks=2, size=6):
        super().__init__()
        self.stem = conv(3, channels, 3)
        self.tower = nn.Sequential(*[Block(channels) for _ in range(blocks)])
        self.policy_conv = conv(channels, 2, 1)
        self.policy = nn.Linear(2 * size * size, size * size)
        self.value_conv = conv(channels, 1, 1)
        self.value_hidden = nn.Linear(size * size, 16)
        self.value = nn.Linear(16, 1)

    def forward(self, board, legal):
        x = self.tower(F.relu(self.stem(board)))
        p = F.relu(self.policy_conv(x)).permute(0, 2, 3, 1).flatten(1)
        logits = self.policy(p).masked_fill(legal == 0, -1e9)
        v = F.relu(self.value_hidden(F.relu(self.value_conv(x)).flatten(1)))
        return {"policy": legal * logits.log_softmax(-1), "value": torch.tanh(self.value(v))}


def policy_loss(log_policy, target):
    return -(target * log_policy).sum(-1).mean()


class SGD(torch.optim.Optimizer):
    """Momentum with the rate inside of the velocity, as in Keras, so that changes of the rate act alike."""

    def __init__(self, params, lr, momentum=0.0, weight_decay=0.0):
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                grad = p.grad.add(p, alpha=group["weight_decay"])
                velocity = self.state[p].setdefault("velocity", torch.zeros_like(p))
                velocity.mul_(group["momentum"]).sub_(grad, alpha=group["lr"])
                p.add_(velocity)


def optimizer(model):
    # An L2 penalty of 1e-3 has the gradient 2e-3 w.
    sgd = SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=2e-3)
    return sgd, torch.optim.lr_scheduler.MultiStepLR(sgd, milestones=[6, 12], gamma=0.2)
