import torch.nn as nn


def conv_bn(cin, cout, stride):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, stride, bias=False),
        nn.BatchNorm2d(cout, eps=1e-3, momentum=0.01),
        nn.ReLU6(),
    )


def conv_dw(cin, cout, stride):
    return nn.Sequential(
        nn.Conv2d(cin, cin, 3, stride, groups=cin, bias=False),
        nn.Conv2d(cin, cout, 1, bias=False),
        nn.BatchNorm2d(cout, eps=1e-3, momentum=0.01),
        nn.ReLU6(),
    )


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = conv_bn(3, 8, 2)
        self.blocks = nn.Sequential(conv_dw(8, 16, 1), conv_dw(16, 24, 2))

    def forward(self, x):
        return self.blocks(self.stem((x / 255.0 - 0.5) / 0.5))


class Classifier(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.backbone = Backbone()
        for p in self.backbone.blocks.parameters():
            p.requires_grad = False
        self.head = nn.Sequential(
            nn.Conv2d(24, 16, 3),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(16, 16),
            nn.ReLU(),
            nn.Linear(16, classes),
        )

    def forward(self, image):
        return self.head(self.backbone(image))


def build():
    return Classifier()
