import math

import torch
from torch import nn
from torch.nn import functional as F

S, NC = 4, 2
PRIORS = torch.tensor([[0.10, 0.22], [0.20, 0.14], [0.34, 0.30]])


class CBL(nn.Module):
    def __init__(self, c1, c2, k):
        super().__init__()
        self.conv = nn.Conv2d(c1, c2, k, padding=k // 2, bias=False)
        self.bn = nn.BatchNorm2d(c2, eps=1e-3, momentum=0.03)

    def forward(self, x):
        return F.leaky_relu(self.bn(self.conv(x)), 0.1)


class CSP(nn.Module):
    def __init__(self, c):
        super().__init__()
        h = c // 2
        self.cv1 = CBL(c, h, 1)
        self.cv2 = CBL(c, h, 1)
        self.m = nn.Sequential(CBL(h, h, 1), CBL(h, h, 3))
        self.cv3 = CBL(2 * h, c, 1)

    def forward(self, x):
        a = self.cv1(x)
        return self.cv3(torch.cat((a + self.m(a), self.cv2(x)), 1))


class Reorg(nn.Module):
    """Channels of a block's four pixels side by side: row, column, channel."""

    def forward(self, x):
        b, c, h, w = x.shape
        x = x.view(b, c, h // 2, 2, w // 2, 2).permute(0, 3, 5, 1, 2, 4)
        return x.reshape(b, 4 * c, h // 2, w // 2)


class ThermalYolo(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1 = CBL(1, 8, 3)
        self.layer2 = CBL(8, 16, 3)
        self.layer3 = CBL(16, 24, 3)
        self.csp = CSP(24)
        self.shortcut = nn.Sequential(CBL(24, 4, 1), Reorg())
        self.neck = CBL(3 * 24 + 16, 32, 1)
        self.detect = nn.Conv2d(32, len(PRIORS) * (5 + NC), 1)

    def forward(self, img):
        x = F.max_pool2d(self.layer1(img[:, None]), 2)
        x = F.max_pool2d(self.layer2(x), 2)
        p = self.layer3(x)
        x = self.csp(F.max_pool2d(p, 2))
        spp = [F.max_pool2d(x, k, 1, k // 2) for k in (3, 5)]
        x = self.detect(self.neck(torch.cat((x, *spp, self.shortcut(p)), 1)))
        return x.unflatten(1, (len(PRIORS), -1)).permute(0, 3, 4, 1, 2)


def corners(box):
    c, half = box[..., :2], box[..., 2:] / 2
    return torch.cat((c - half, c + half), -1)


def bbox_ciou(pred, gt, eps=1e-7):
    p, g = corners(pred), corners(gt)
    inter = (torch.min(p[..., 2:], g[..., 2:]) - torch.max(p[..., :2], g[..., :2])).clamp(min=0).prod(-1)
    iou = inter / (pred[..., 2:].prod(-1) + gt[..., 2:].prod(-1) - inter + eps)
    c2 = (torch.max(p[..., 2:], g[..., 2:]) - torch.min(p[..., :2], g[..., :2])).pow(2).sum(-1) + eps
    rho2 = (pred[..., :2] - gt[..., :2]).pow(2).sum(-1)
    v = (4 / math.pi**2) * (
        torch.atan(gt[..., 2] / (gt[..., 3] + eps)) - torch.atan(pred[..., 2] / (pred[..., 3] + eps))
    ).pow(2)
    alpha = v / (1 - iou + v + eps)
    return iou - rho2 / c2 - alpha * v


def loss(outputs, targets):
    n = outputs.shape[0]
    iy, ix = torch.meshgrid(torch.arange(S), torch.arange(S), indexing="ij")
    offset = torch.stack((ix, iy), -1)[:, :, None].to(outputs)
    t = outputs[..., :4].sigmoid() * 2
    boxes = torch.cat(((t[..., :2] - 0.5 + offset) / S, t[..., 2:] ** 2 * PRIORS.to(outputs)), -1)

    hit = targets[..., 0] > 0
    overlap = bbox_ciou(boxes[hit], targets[..., 1:5][hit])
    quality = torch.zeros_like(targets[..., 0])
    quality[hit] = overlap.detach().clamp(min=0).to(quality)

    l_box = (1 - overlap).sum()
    l_obj = F.binary_cross_entropy_with_logits(outputs[..., 4], quality, reduction="sum")
    l_cls = F.binary_cross_entropy_with_logits(outputs[..., 5:][hit], targets[..., 5:][hit], reduction="sum")
    return (2 * l_box + l_obj + 0.5 * l_cls) / n


def optimizer(params):
    return torch.optim.SGD(params, lr=2e-3, momentum=0.9, nesterov=True)


def build():
    return ThermalYolo()
