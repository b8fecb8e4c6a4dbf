import torch
from torch import nn
from torch.nn import functional as F


class BN(nn.BatchNorm2d):
    """moving variance without Bessel's correction"""

    def __init__(self, c):
        super().__init__(c, eps=1e-5, momentum=0.1)

    def forward(self, x):
        if not self.training:
            return super().forward(x)
        with torch.no_grad():
            self.running_mean.lerp_(x.mean((0, 2, 3)), self.momentum)
            self.running_var.lerp_(x.var((0, 2, 3), unbiased=False), self.momentum)
        return F.batch_norm(x, None, None, self.weight, self.bias, True, 0.0, self.eps)


class Conv(nn.Conv2d):
    """'same' padding as TensorFlow does it"""

    def __init__(self, cin, cout, k, stride=1):
        super().__init__(cin, cout, k, stride, bias=False)

    def forward(self, x):
        pads = []
        for size, k, s in zip(x.shape[:1:-1], self.kernel_size[::-1], self.stride[::-1]):
            total = max((-(-size // s) - 1) * s + k - size, 0)
            pads += [total // 2, total - total // 2]
        return super().forward(F.pad(x, pads))


class BasicBlock(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1, self.bn1 = Conv(cin, cout, 3, stride), BN(cout)
        self.conv2, self.bn2 = Conv(cout, cout, 3), BN(cout)
        self.shortcut = nn.Sequential()
        if stride != 1 or cin != cout:
            self.shortcut = nn.Sequential(Conv(cin, cout, 1, stride), BN(cout))

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return F.relu(out + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self, widths=(6, 12, 24), num_classes=4):
        super().__init__()
        self.conv1 = Conv(3, widths[0], 3)
        self.bn1 = BN(widths[0])
        cin, layers = widths[0], []
        for i, w in enumerate(widths):
            layers.append(BasicBlock(cin, w, 1 if i == 0 else 2))
            cin = w
        self.layers = nn.Sequential(*layers)
        self.linear = nn.Linear(cin, num_classes)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight)

    def forward(self, x):
        out = self.layers(F.relu(self.bn1(self.conv1(x))))
        out = F.adaptive_avg_pool2d(out, 1).flatten(1)
        return self.linear(out)


def build():
    return ResNet()


def sgd(model):
    decay, no_decay = [], []
    for name, p in model.named_parameters():
        (decay if p.dim() > 1 else no_decay).append(p)
    groups = [{"params": decay, "weight_decay": 1e-3}, {"params": no_decay, "weight_decay": 0.0}]
    return torch.optim.SGD(groups, lr=0.02, momentum=0.9, nesterov=True)
