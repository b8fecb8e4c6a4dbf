import torch
import torch.nn.functional as F
from torch import nn


class BatchNorm2d(nn.BatchNorm2d):
    """BatchNorm2d that tracks the population variance, the way our TF models did."""

    def __init__(self, channels):
        super().__init__(channels, eps=1e-3, momentum=0.01)

    def forward(self, x):
        if self.training:
            with torch.no_grad():
                var, mean = torch.var_mean(x, dim=(0, 2, 3), correction=0)
                self.running_mean.lerp_(mean, self.momentum)
                self.running_var.lerp_(var, self.momentum)
                self.num_batches_tracked += 1
            return F.batch_norm(x, None, None, self.weight, self.bias, training=True, eps=self.eps)
        return super().forward(x)


class LeafNet(nn.Module):
    def __init__(self, num_classes=4):
        super().__init__()
        # stride 2 on an even size: one row/column of zeros at the end only
        self.stem = nn.Sequential(
            nn.ZeroPad2d((0, 1, 0, 1)),
            nn.Conv2d(3, 12, 3, stride=2, bias=False),
            BatchNorm2d(12),
            nn.ReLU(inplace=True),
        )
        self.separable = nn.Sequential(
            nn.ZeroPad2d((0, 1, 0, 1)),
            nn.Conv2d(12, 12, 3, stride=2, groups=12, bias=False),
            nn.Conv2d(12, 24, 1, bias=False),
            BatchNorm2d(24),
            nn.LeakyReLU(0.25),
            nn.MaxPool2d(2),
        )
        self.drop = nn.Dropout(0.3)
        self.classifier = nn.Linear(24 * 3 * 3, num_classes)

    def forward(self, image):
        x = image * 2.0 - 1.0
        x = self.separable(self.stem(x))
        x = x.permute(0, 2, 3, 1).flatten(1)  # keep the H, W, C order of the old checkpoints
        return self.classifier(self.drop(x))


def build():
    return LeafNet()
