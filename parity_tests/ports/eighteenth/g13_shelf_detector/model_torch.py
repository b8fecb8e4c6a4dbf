import torch
from torch import nn


def conv_bn(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1, bias=False),
        nn.BatchNorm2d(cout, eps=1e-3, momentum=0.01),
        nn.ReLU6(),
        nn.AvgPool2d(2),
    )


class ShelfNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(conv_bn(3, 8), conv_bn(8, 12))
        self.backbone.requires_grad_(False)
        self.neck = nn.Sequential(nn.Conv2d(12, 12, 3), nn.ReLU())
        self.shared = nn.Sequential(nn.Flatten(), nn.Linear(48, 20), nn.ReLU())
        self.kind = nn.Linear(20, 3)
        self.box = nn.Linear(20, 4)
        self.quality = nn.Sequential(nn.Linear(20, 8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, photo):
        f = self.shared(self.neck(self.backbone(photo)))
        return {
            "kind": self.kind(f),
            "box": torch.sigmoid(self.box(f)),
            "sharp": self.quality(f),
        }


def build():
    return ShelfNet()
