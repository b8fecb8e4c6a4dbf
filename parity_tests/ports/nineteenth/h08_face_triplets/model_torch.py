"""FaceNet-like: one encoder for anchor, positive and negative, embeddings on the unit sphere."""

import torch
from torch import nn
from torch.nn import functional as F

MARGIN = 0.4


class Triplet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1)
        self.embed = nn.Linear(16, 10)

    def encode(self, x):
        x = F.avg_pool2d(F.elu(self.conv1(x)), 2)
        x = F.elu(self.conv2(x)).amax(dim=(2, 3))
        return F.normalize(self.embed(x), dim=-1)

    def forward(self, anchor, positive, negative):
        return self.encode(anchor), self.encode(positive), self.encode(negative)


def step(model, batch):
    inputs = batch[0] if isinstance(batch, (tuple, list)) else batch
    anchor, positive, negative = model(inputs["anchor"], inputs["positive"], inputs["negative"])
    return F.triplet_margin_loss(anchor, positive, negative, margin=MARGIN)


class ClippedSGD(torch.optim.SGD):
    def __init__(self, params, lr, momentum, max_norm):
        super().__init__(params, lr=lr, momentum=momentum)
        self.max_norm = max_norm

    def step(self, closure=None):
        params = [p for group in self.param_groups for p in group["params"]]
        nn.utils.clip_grad_norm_(params, self.max_norm)
        return super().step(closure)


def optimizer(params):
    return ClippedSGD(params, lr=0.1, momentum=0.9, max_norm=0.2)
