import torch
import torch.nn.functional as F
from torch import nn

WHALES, MARGIN, SCALE = 6, 0.2, 12.0


class ConvBN(nn.Sequential):
    def __init__(self, cin, cout, stride):
        # "same" of TensorFlow: with stride 2 and even sizes the padding is right and below only
        pad = nn.ZeroPad2d((0, 1, 0, 1)) if stride == 2 else nn.ZeroPad2d(1)
        super().__init__(
            pad,
            nn.Conv2d(cin, cout, 3, stride, bias=False),
            nn.BatchNorm2d(cout, eps=1e-3, momentum=0.01),
            nn.ReLU(),
        )


class FlukeNet(nn.Module):
    def __init__(self, dim=10):
        super().__init__()
        self.backbone = nn.Sequential(
            ConvBN(1, 6, 1), ConvBN(6, 8, 2), ConvBN(8, 12, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        )
        for p in self.backbone.parameters():
            p.requires_grad = False
        self.head = nn.Sequential(nn.Linear(12, 24), nn.PReLU(24), nn.Linear(24, dim, bias=False))
        self.proxies = nn.Parameter(torch.randn(WHALES, dim))

    def forward(self, fluke):
        x = self.head(self.backbone(fluke.movedim(-1, 1)))
        x = x * (x.pow(2).sum(1, keepdim=True) + 1e-6).rsqrt()
        w = self.proxies * (self.proxies.pow(2).sum(1, keepdim=True) + 1e-6).rsqrt()
        return F.linear(x, w)


def build():
    return FlukeNet()


def cosine_margin(cosines, whale):
    whale = whale.view(-1, 1).long()
    logits = SCALE * cosines.scatter_add(1, whale, torch.full_like(cosines[:, :1], -MARGIN))
    return F.cross_entropy(logits, whale[:, 0])
