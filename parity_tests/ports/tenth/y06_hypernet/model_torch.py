import math

import torch
from torch import nn
from torch.nn import functional as F


class HyperConv2d(nn.Module):
    """Kernels from a context vector; all samples of a batch in one grouped convolution."""

    def __init__(self, context, cin, cout, k=3):
        super().__init__()
        self.cin, self.cout, self.k = cin, cout, k
        self.to_weight = nn.Linear(context, k * k * cin * cout)
        self.to_bias = nn.Linear(context, cout)

    def forward(self, x, context):
        b, _, h, w = x.shape
        weight = self.to_weight(context).view(b, self.k, self.k, self.cin, self.cout)
        weight = weight.permute(0, 4, 3, 1, 2).reshape(b * self.cout, self.cin, self.k, self.k)
        weight = weight * (self.k * self.k * self.cin) ** -0.5
        y = F.conv2d(
            x.reshape(1, b * self.cin, h, w),
            weight,
            self.to_bias(context).flatten(),
            padding=self.k // 2,
            groups=b,
        )
        return y.view(b, self.cout, h, w)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(5, 16), nn.Tanh())
        self.stem = nn.Conv2d(1, 8, 3, padding="same")
        self.hyper = HyperConv2d(16, 8, 6)
        self.out = nn.Linear(2 * 2 * 6 + 16, 1)

    def forward(self, image, question):
        ctx = self.encoder(question)
        y = F.silu(self.hyper(self.stem(image).relu_(), ctx), inplace=True)
        y = F.avg_pool2d(y, 4).movedim(1, -1).flatten(1)
        y = F.dropout(y, p=0.1, training=self.training)
        return self.out(torch.cat((y, ctx), dim=1))


def loss(output, target):
    e = output.squeeze(1) - target.view(-1).to(output.dtype)
    return (torch.logaddexp(e, -e) - math.log(2.0)).mean()
