"""NetVLAD (Arandjelovic et al. 2016) with a small separable backbone and a weighted triplet loss."""

import torch
import torch.nn.functional as F
from torch import nn


class NetVLAD(nn.Module):
    def __init__(self, dim, clusters):
        super().__init__()
        self.conv = nn.Conv2d(dim, clusters, kernel_size=1)
        self.centroids = nn.Parameter(torch.rand(clusters, dim) - 0.5)

    def forward(self, x):
        x = F.normalize(x, dim=1)
        assignment = self.conv(x).flatten(2).softmax(dim=1)
        x = x.flatten(2)
        residual = x.unsqueeze(1) - self.centroids[None, :, :, None]
        vlad = (residual * assignment.unsqueeze(2)).sum(-1)
        vlad = F.normalize(vlad, dim=2)
        return F.normalize(vlad.transpose(1, 2).flatten(1), dim=1)


class GatedWhitening(nn.Module):
    def __init__(self, dim, out):
        super().__init__()
        self.fc = nn.Linear(dim, out)
        self.gating = nn.Linear(out, out)

    def forward(self, x):
        x = self.fc(x)
        return F.glu(torch.cat([x, self.gating(x)], dim=1), dim=1)


def sep_conv(inp, out):
    return nn.Sequential(
        nn.Conv2d(inp, 2 * inp, 3, padding="same", groups=inp, bias=False),
        nn.Conv2d(2 * inp, out, 1, bias=False),
        nn.GroupNorm(4, out),
        nn.LeakyReLU(0.125),
    )


class PlaceNet(nn.Module):
    def __init__(self, clusters=6, dim=32, out=48):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 5, padding=2), nn.LeakyReLU(0.125), nn.MaxPool2d(3, 2))
        self.stage2 = sep_conv(16, 24)
        self.pool = nn.AvgPool2d(3, 2, padding=1, count_include_pad=False)
        self.stage3 = sep_conv(24, dim)
        self.local = nn.Conv2d(dim, dim, 1)
        self.aggregate = NetVLAD(dim, clusters)
        self.whitening = GatedWhitening(dim * clusters, out)

    def describe(self, image):
        x = self.stage3(self.pool(self.stage2(self.stem(image))))
        return F.normalize(self.whitening(self.aggregate(self.local(x))), dim=1)

    def forward(self, query, positive, negatives):
        views = torch.cat([query.unsqueeze(1), positive.unsqueeze(1), negatives], dim=1)
        if views.shape[-1] == 3:  # as loaded, channels last
            views = views.movedim(-1, 2)
        d = self.describe(views.flatten(0, 1)).unflatten(0, views.shape[:2])
        return {"query": d[:, 0], "positive": d[:, 1], "negatives": d[:, 2:]}


def build():
    return PlaceNet()


def step(model, batch, margin=0.3):
    inputs, metres = batch
    out = model(**inputs) if isinstance(inputs, dict) else model(*inputs)
    near = (out["query"] - out["positive"]).pow(2).sum(-1)
    far = (out["query"].unsqueeze(1) - out["negatives"]).pow(2).sum(-1)
    hinge = F.relu(near.unsqueeze(1) - far + margin)
    active = hinge.detach().gt(0).sum(1).clamp(min=1)
    triplet = hinge.sum(1) / active
    trust = torch.exp(-metres.to(near.dtype) / 25.0)
    return (trust * triplet).sum() / trust.sum() + 0.01 * near.mean()
