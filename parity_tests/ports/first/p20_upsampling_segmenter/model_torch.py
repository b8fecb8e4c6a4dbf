import torch
from torch import nn
from torch.nn import functional as F


class Segmenter(nn.Module):
    def __init__(self, classes=3):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1)
        self.conv3 = nn.Conv2d(16, 24, 3, padding=1)
        self.lateral3 = nn.Conv2d(24, 16, 1, bias=False)
        self.lateral2 = nn.Conv2d(16, 16, 1)
        self.lateral1 = nn.Conv2d(8, 16, 1)
        self.smooth2 = nn.Conv2d(32, 16, 3, padding=1)
        self.smooth1 = nn.Conv2d(32, 16, 3, padding=1)
        self.logits = nn.Conv2d(16, classes, 1)

    @staticmethod
    def up(x):
        return F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True)

    def forward(self, image):
        c1 = F.relu(self.conv1(image))
        c2 = F.relu(self.conv2(F.avg_pool2d(c1, 2)))
        c3 = F.relu(self.conv3(F.avg_pool2d(c2, 2)))
        x = torch.cat([self.up(self.lateral3(c3)), self.lateral2(c2)], 1)
        x = F.relu(self.smooth2(x))
        x = torch.cat([self.lateral1(c1), self.up(x)], 1)
        return self.logits(F.relu(self.smooth1(x)))
