import torch
from torch import nn
from torch.nn import functional as F


class BN(nn.BatchNorm2d):
    """torch's epsilon and momentum (the Keras model was given them), Keras's biased running variance."""

    def forward(self, x):
        if not self.training:
            return super().forward(x)
        mean, var = x.mean((0, 2, 3)), x.var((0, 2, 3), unbiased=False)
        with torch.no_grad():
            self.running_mean.mul_(0.9).add_(mean, alpha=0.1)
            self.running_var.mul_(0.9).add_(var, alpha=0.1)
        return F.batch_norm(x, None, None, self.weight, self.bias, training=True, eps=self.eps)


class PreactBlock(nn.Module):
    def __init__(self, cin, cout, stride=1):
        super().__init__()
        self.bn1 = BN(cin)
        self.conv1 = nn.Conv2d(cin, cout, 3, stride=stride, padding=1, bias=False)
        self.bn2 = BN(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, padding=1, bias=False)
        if stride > 1:
            self.shortcut = nn.Conv2d(cin, cout, 1, stride=stride, bias=False)

    def forward(self, x):
        pre = F.relu(self.bn1(x))
        shortcut = self.shortcut(pre) if hasattr(self, "shortcut") else x
        return shortcut + self.conv2(F.relu(self.bn2(self.conv1(pre))))


def build_resnet():
    return nn.Sequential(
        nn.Conv2d(1, 8, 5, padding="same", bias=False),
        BN(8),
        nn.ReLU(),
        nn.MaxPool2d(3, stride=2, padding=1),  # after a ReLU it is the same whether zeros or -inf are padded
        PreactBlock(8, 8),
        PreactBlock(8, 16, stride=2),
        PreactBlock(16, 32, stride=2),
        BN(32),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 10),
    )
