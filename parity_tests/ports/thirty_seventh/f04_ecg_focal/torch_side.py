import torch
import torch.nn as nn
import torch.nn.functional as F


class WSConv1d(nn.Conv1d):
    def forward(self, x):
        w = self.weight
        var, mean = torch.var_mean(w, dim=(1, 2), keepdim=True)
        w = (w - mean) * torch.rsqrt(var + 1e-5)
        return F.conv1d(x, w, self.bias, padding="same")


class SqueezeExcite(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.down = nn.Linear(c, c // 4)
        self.up = nn.Linear(c // 4, c)

    def forward(self, x):
        s = torch.sigmoid(self.up(F.relu(self.down(x.mean(-1)))))
        return x * s.unsqueeze(-1)


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.norm_a = nn.GroupNorm(4, c)
        self.conv_a = WSConv1d(c, c, 5)
        self.norm_b = nn.GroupNorm(4, c)
        self.conv_b = WSConv1d(c, c, 3)
        self.se = SqueezeExcite(c)

    def forward(self, x):
        y = self.conv_a(F.relu(self.norm_a(x)))
        y = self.conv_b(F.relu(self.norm_b(y)))
        return F.max_pool1d(x + self.se(y), 2)


class ECGNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv1d(2, 16, 7, padding=3)
        self.blocks = nn.Sequential(*[Block(16) for _ in range(3)])
        self.head = nn.Linear(16, 3)

    def forward(self, x):  # (batch, time, leads)
        h = self.blocks(self.stem(x.transpose(1, 2)))
        return self.head(F.relu(h).mean(-1))


def focal_loss(logits, y, alpha=0.75, gamma=2.0):
    y = y.to(logits.dtype)
    bce = F.binary_cross_entropy_with_logits(logits, y, reduction="none")
    with torch.no_grad():
        pt = torch.exp(-bce)
        weight = torch.where(y > 0.5, alpha, 1 - alpha) * (1 - pt) ** gamma
    return (weight * bce).mean()


def build():
    return ECGNet()
