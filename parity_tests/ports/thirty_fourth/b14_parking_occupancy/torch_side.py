import torch.nn.functional as F
from torch import nn


class Backbone(nn.Sequential):
    def __init__(self):
        super().__init__(
            nn.Conv2d(3, 8, 3, padding=1, bias=False),
            nn.BatchNorm2d(8, eps=1e-3, momentum=0.01),
            nn.ReLU(inplace=True),
            nn.ZeroPad2d((0, 1, 0, 1)),
            nn.Conv2d(8, 16, 3, stride=2, bias=False),
            nn.BatchNorm2d(16, eps=1e-3, momentum=0.01),
            nn.ReLU(inplace=True),
        )


class ParkingNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = Backbone()
        for p in self.backbone.parameters():
            p.requires_grad = False
        self.up = nn.ConvTranspose2d(16, 12, 3, stride=2)
        self.depthwise = nn.Conv2d(12, 12, 3, padding=1, groups=12, bias=False)
        self.pointwise = nn.Conv2d(12, 8, 1)
        self.score = nn.Conv2d(8, 1, 1)

    def forward(self, image):  # B, H, W, 3
        x = self.backbone(image.movedim(-1, 1))
        x = F.relu(self.up(x)[..., :-1, :-1])
        x = F.relu(self.pointwise(self.depthwise(x)))
        return self.score(x).squeeze(1)


def build():
    return ParkingNet()
