import torch
import torch.nn as nn
import torch.nn.functional as F


class SelectiveKernel(nn.Module):
    def __init__(self, dim, hidden, dilations=(1, 2)):
        super().__init__()
        self.paths = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(dim, dim, 3, padding=d, dilation=d, groups=dim, bias=False),
                nn.BatchNorm2d(dim),
                nn.ReLU(inplace=True),
            )
            for d in dilations
        )
        self.reduce = nn.Linear(dim, hidden)
        self.heads = nn.ModuleList(nn.Linear(hidden, dim) for _ in dilations)

    def forward(self, x):
        feats = torch.stack([path(x) for path in self.paths], dim=1)  # B, K, C, H, W
        z = F.relu(self.reduce(feats.sum(1).mean((-2, -1))))
        attn = torch.stack([h(z) for h in self.heads], dim=1).softmax(1)
        return torch.einsum("bkchw,bkc->bchw", feats, attn)


class SKBlock(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.body = nn.Sequential(
            nn.ReLU(inplace=True),
            nn.Conv2d(dim, dim, 1, bias=False),
            nn.BatchNorm2d(dim),
            SelectiveKernel(dim, hidden),
            nn.Conv2d(dim, dim, 1, bias=False),
            nn.BatchNorm2d(dim),
        )

    def forward(self, x):
        return x + self.body(x)


class MushroomNet(nn.Module):
    def __init__(self, n_classes=5):
        super().__init__()
        self.stem = nn.Sequential(
            nn.ZeroPad2d((0, 1, 0, 1)),
            nn.Conv2d(3, 12, 3, stride=2, bias=False),
            nn.BatchNorm2d(12),
        )
        self.stage1 = nn.Sequential(SKBlock(12, 6), SKBlock(12, 6))
        self.down = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(12, 20, 1, bias=False), nn.BatchNorm2d(20))
        self.stage2 = SKBlock(20, 10)
        self.head = nn.Linear(20, n_classes)

    def forward(self, image):
        x = image.permute(0, 3, 1, 2)
        x = self.stage2(self.down(self.stage1(self.stem(x))))
        return self.head(F.relu(x).mean(dim=(2, 3)))


def build():
    return MushroomNet()
