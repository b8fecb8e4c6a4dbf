import torch
import torch.nn as nn
import torch.nn.functional as F


class SameStride2(nn.Conv2d):
    """TensorFlow's SAME for kernel 5, stride 2 and even sizes: one before, two after."""

    def forward(self, x):
        return super().forward(F.pad(x, (1, 2, 1, 2)))


class StereoNet(nn.Module):
    def __init__(self, planes=6, fb=12.0):
        super().__init__()
        self.planes, self.fb = planes, fb
        self.siamese = nn.Sequential(
            SameStride2(3, 12, 5, stride=2),
            nn.GroupNorm(3, 12, eps=1e-3),
            nn.SiLU(inplace=True),
            nn.Conv2d(12, 16, 3, padding=1),
            nn.GroupNorm(4, 16, eps=1e-3),
            nn.SiLU(inplace=True),
            nn.Conv2d(16, 16, 3, padding=2, dilation=2, bias=False),
        )
        self.ctx = nn.Conv2d(16, 8, 1)
        self.regularise = nn.Sequential(
            nn.Conv2d(planes + 8, 24, 3, padding="same"),
            nn.LeakyReLU(0.2),
            nn.Conv2d(24, planes, 3, padding="same"),
        )
        self.refine = nn.Sequential(nn.Conv2d(4, 12, 3, padding=1), nn.ELU(), nn.Conv2d(12, 1, 3, padding=1))
        self.register_buffer("grid", torch.arange(planes, dtype=torch.float32))

    def correlate(self, a, b):
        width = b.shape[-1]
        windows = F.pad(b, (self.planes - 1, 0)).unfold(3, width, 1)  # N C H D W, from the largest shift down
        return torch.einsum("nchw,nchdw->ndhw", a, windows.flip(3)) / a.shape[1]

    def forward(self, left, right):
        left, right = (v.permute(0, 3, 1, 2) for v in (left, right))
        fa, fb = self.siamese(torch.cat([left, right])).chunk(2)
        cost = self.correlate(fa, fb)
        logits = cost + self.regularise(torch.cat([cost, self.ctx(fa).relu()], 1))
        disparity = torch.tensordot(logits.softmax(1), self.grid, dims=([1], [0])).unsqueeze(1)
        disparity = 2 * F.interpolate(disparity, scale_factor=2, mode="bilinear", align_corners=False)
        disparity = disparity + self.refine(torch.cat([disparity, left], 1))
        return (self.fb / (F.softplus(disparity) + 0.1)).permute(0, 2, 3, 1)


def silog(pred, depth, lam=0.85):
    losses = []
    for p, d in zip(pred, depth):
        ok = d > 0
        g = p[ok].log() - d[ok].log()
        losses.append(g.var(correction=0) + (1 - lam) * g.mean().square())
    return torch.stack(losses).mean()


def edge_aware(pred, image):
    disp = pred.reciprocal()
    disp = disp / disp.mean((1, 2, 3), keepdim=True)
    total = 0.0
    for axis in (1, 2):
        weight = torch.exp(-4.0 * image.diff(dim=axis).abs().mean(-1, keepdim=True))
        total = total + (weight * (disp.diff(dim=axis).square() + 1e-4).sqrt()).mean()
    return total


def _unpack(batch):
    if isinstance(batch, dict):
        return batch["left"], batch["right"], batch["depth"]
    x, y = batch[0], batch[1]
    return (x["left"], x["right"], y) if isinstance(x, dict) else (x[0], x[1], y)


def step(model, batch):
    left, right, depth = _unpack(batch)
    pred = model(left, right)
    return silog(pred, depth) + 0.05 * edge_aware(pred, left)


def build():
    return StereoNet()
