import torch
from torch import nn
from torch.nn import functional as F

KINDS = 3


class ConvGN(nn.Sequential):
    def __init__(self, c_in, c_out):
        super().__init__(
            nn.ZeroPad2d((0, 1, 0, 1)),
            nn.Conv2d(c_in, c_out, 3, stride=2, bias=False),
            nn.GroupNorm(4, c_out),
            nn.ReLU(),
        )


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.value = nn.Parameter(torch.tensor(1.0))

    def forward(self, x):
        return self.value * x


class Head(nn.Module):
    def __init__(self, channels, levels):
        super().__init__()
        self.shared = nn.Conv2d(channels, channels, 3, padding=1)
        self.classes = nn.Conv2d(channels, KINDS, 3, padding=1)
        self.distances = nn.Conv2d(channels, 4, 3, padding=1)
        self.centerness = nn.Conv2d(channels, 1, 3, padding=1)
        self.scales = nn.ModuleList(Scale() for _ in range(levels))

    def forward(self, maps):
        rows = []
        for feature, scale in zip(maps, self.scales):
            feature = F.relu(self.shared(feature))
            sides = scale(self.distances(feature).exp())
            out = torch.cat([self.classes(feature), sides, self.centerness(feature)], dim=1)
            rows.append(out.flatten(2).transpose(1, 2))
        return torch.cat(rows, dim=1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stage1, self.stage2, self.stage3 = ConvGN(1, 12), ConvGN(12, 16), ConvGN(16, 24)
        self.inner2, self.inner3 = nn.Conv2d(16, 16, 1), nn.Conv2d(24, 16, 1)
        self.head = Head(16, 2)

    def forward(self, image):
        c2 = self.stage2(self.stage1(image))
        c3 = self.stage3(c2)
        p3 = self.inner3(c3)
        p2 = self.inner2(c2) + F.interpolate(p3, scale_factor=2, mode="nearest")
        return self.head([p2, p3])


def loss(output, target):
    target = target.to(output)
    kinds, sides, centers = target.split([KINDS, 4, 1], dim=-1)
    positive = kinds.amax(-1)
    count = positive.sum(1).clamp(min=1)

    logits, distances, centerness = output.split([KINDS, 4, 1], dim=-1)
    bce = F.binary_cross_entropy_with_logits(logits, kinds, reduction="none")
    p = logits.sigmoid()
    p_t = p * kinds + (1 - p) * (1 - kinds)
    alpha_t = 0.25 * kinds + 0.75 * (1 - kinds)
    hardness = (alpha_t * (1 - p_t).pow(2)).detach()
    focal = (hardness * bce).sum((1, 2)) / count

    box = F.smooth_l1_loss(distances, sides, reduction="none", beta=0.5).sum(-1)
    box = (box * positive).sum(1) / count

    center = F.binary_cross_entropy_with_logits(centerness, centers, reduction="none").squeeze(-1)
    center = (center * positive).sum(1) / count
    return (focal + box + center).mean()
