import torch
import torch.nn.functional as F
from torch import nn

STRIDE, CLASSES, ALPHA, GAMMA = 4, 3, 0.25, 2.0


class BatchNorm(nn.Module):
    def __init__(self, channels, eps=1e-3, momentum=0.1):
        super().__init__()
        self.eps, self.momentum = eps, momentum
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))

    def forward(self, x):
        if not self.training:
            return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)
        with torch.no_grad():
            var, mean = torch.var_mean(x, (0, 2, 3), correction=0)
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(var, self.momentum)
        return F.batch_norm(x, None, None, self.weight, self.bias, True, 0.0, self.eps)


class ConvNorm(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 3, stride=2, padding=1, bias=False)
        self.bn = BatchNorm(cout)

    def forward(self, x):
        return F.relu(self.bn(self.conv(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1, self.c2, self.c3 = ConvNorm(1, 8), ConvNorm(8, 16), ConvNorm(16, 24)
        self.lateral2, self.lateral3 = nn.Conv2d(16, 16, 1), nn.Conv2d(24, 16, 1)
        self.tower = nn.Conv2d(16, 16, 3, padding=1)
        self.heat = nn.Conv2d(16, CLASSES, 1)
        self.ltrb = nn.Conv2d(16, 4, 1)
        nn.init.constant_(self.heat.bias, -2.0)

    def forward(self, image):
        c2 = self.c2(self.c1(image))
        c3 = self.c3(c2)
        p2 = self.lateral2(c2) + F.interpolate(self.lateral3(c3), scale_factor=2)
        x = F.relu(self.tower(F.relu(self.tower(p2))))
        return {"heat": self.heat(x), "box": STRIDE * F.softplus(self.ltrb(x))}


def focal(output, target):
    ce = F.binary_cross_entropy_with_logits(output, target, reduction="none")
    p_t = torch.exp(-ce)
    alpha_t = torch.where(target > 0, ALPHA, 1 - ALPHA)
    loss = alpha_t * (1 - p_t) ** GAMMA * ce
    return loss.sum() / target.sum().clamp(min=1)


def giou(output, target):
    inside = (target.amax(1) > 0).to(output.dtype)
    low, high = torch.minimum(output, target), torch.maximum(output, target)

    def area(d):
        return (d[:, 0] + d[:, 2]) * (d[:, 1] + d[:, 3])

    overlap, hull = area(low), area(high)
    union = area(output) + area(target) - overlap
    value = 1 - overlap / (union + 1e-7) + (hull - union) / (hull + 1e-7)
    objects = inside.sum((1, 2)).clamp(min=1)
    return ((value * inside).sum((1, 2)) / objects).mean()
