import torch
import torch.nn as nn
import torch.nn.functional as F

WEIGHT_REG = 5e-4


class TFBatchNorm2d(nn.BatchNorm2d):
    """Batch norm whose running variance is the biased one, as in TF."""

    def __init__(self, c):
        super().__init__(c, eps=1e-3, momentum=0.1)

    def forward(self, x):
        if not self.training:
            return super().forward(x)
        mean = x.mean((0, 2, 3))
        var = x.var((0, 2, 3), unbiased=False)
        with torch.no_grad():
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(var, self.momentum)
        return F.batch_norm(x, None, None, self.weight, self.bias, True, 0.0, self.eps)


class SameConv(nn.Conv2d):
    def __init__(self, cin, cout, k, stride=1):
        super().__init__(cin, cout, k, stride=stride, bias=False)

    def forward(self, x):
        pads = []
        for size in (x.shape[-1], x.shape[-2]):
            k, s = self.kernel_size[0], self.stride[0]
            total = max((-(-size // s) - 1) * s + k - size, 0)
            pads += [total // 2, total - total // 2]
        return super().forward(F.pad(x, pads))


class BasicBlock(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.body = nn.Sequential(
            SameConv(cin, cout, 3, stride),
            TFBatchNorm2d(cout),
            nn.ReLU(),
            SameConv(cout, cout, 3),
            TFBatchNorm2d(cout),
        )
        self.downsample = None
        if stride != 1 or cin != cout:
            self.downsample = nn.Sequential(SameConv(cin, cout, 1, stride), TFBatchNorm2d(cout))

    def forward(self, x):
        skip = x if self.downsample is None else self.downsample(x)
        return F.relu(self.body(x) + skip)


class ResNet(nn.Module):
    def __init__(self, num_classes=5):
        super().__init__()
        self.conv1 = SameConv(3, 8, 3)
        self.bn1 = TFBatchNorm2d(8)
        self.layers = nn.Sequential(BasicBlock(8, 8, 1), BasicBlock(8, 12, 2), BasicBlock(12, 16, 2))
        self.classifier = nn.Linear(16, num_classes)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.layers(x).mean((2, 3))
        reg = sum(m.weight.square().sum() for m in self.modules() if isinstance(m, nn.Conv2d))
        return self.classifier(x), WEIGHT_REG * reg


def build():
    return ResNet()


def loss(outputs, targets):
    logits, reg = outputs
    return F.cross_entropy(logits, targets.long()) + reg
