from collections import OrderedDict

import torch
import torch.nn as nn
import torch.nn.functional as F

TEMPERATURE = 3.0
ALPHA = 0.4


class TFSame(nn.ZeroPad2d):
    """3x3, stride 2, even size: TensorFlow pads only at the end."""

    def __init__(self):
        super().__init__((0, 1, 0, 1))


def norm_act(c, act):
    return [nn.BatchNorm2d(c, eps=1e-3), act]


def separable(cin, cout, stride=1):
    pad = [TFSame()] if stride == 2 else []
    return pad + [
        nn.Conv2d(cin, cin, 3, stride, 0 if pad else 1, groups=cin, bias=False),
        nn.Conv2d(cin, cout, 1, bias=False),
    ]


class Backbone(nn.Module):
    def __init__(self, low, mid, high, width, classes):
        super().__init__()
        self.body = nn.ModuleDict(
            OrderedDict(low=nn.Sequential(*low), mid=nn.Sequential(*mid), high=nn.Sequential(*high))
        )
        self.fc = nn.Linear(width, classes)

    def forward(self, x):
        z = self.body["mid"](self.body["low"](x))
        return z, self.fc(self.body["high"](z).mean(dim=(-2, -1)))


class KWS(nn.Module):
    def __init__(self, classes=6):
        super().__init__()
        r6, r = nn.ReLU6(), nn.ReLU()
        self.teacher = Backbone(
            [TFSame(), nn.Conv2d(1, 24, 3, 2, bias=False), *norm_act(24, r)],
            [TFSame(), nn.Conv2d(24, 32, 3, 2, bias=False), *norm_act(32, r)],
            [nn.Conv2d(32, 48, 3, padding=1, bias=False), *norm_act(48, r)],
            48,
            classes,
        )
        self.student = Backbone(
            [TFSame(), nn.Conv2d(1, 12, 3, 2, bias=False), *norm_act(12, r6)],
            [*separable(12, 16, 2), *norm_act(16, r6)],
            [*separable(16, 24), *norm_act(24, r6)],
            24,
            classes,
        )
        self.hint = nn.Conv2d(16, 32, kernel_size=1)
        self.teacher.requires_grad_(False)
        self.teacher.eval()

    def train(self, mode=True):
        super().train(mode)
        self.teacher.eval()
        return self

    @staticmethod
    def prepare(x):
        return x.movedim(-1, 1).add(4.2).div(1.7)

    def forward(self, x):
        return self.student(self.prepare(x))[1]


def _xy(batch):
    if isinstance(batch, dict):
        return batch["logmel"], batch["word"]
    x, y = batch[0], batch[1]
    if isinstance(x, dict):
        x = x["logmel"]
    elif isinstance(x, (list, tuple)):
        x = x[0]
    if isinstance(y, dict):
        y = y["word"]
    elif isinstance(y, (list, tuple)):
        y = y[0]
    return x, y


def step(model, batch):
    x, y = _xy(batch)
    x = model.prepare(x)
    with torch.no_grad():
        want, target = model.teacher(x)
    have, logits = model.student(x)
    kd = F.kl_div(
        F.log_softmax(logits / TEMPERATURE, 1),
        F.log_softmax(target / TEMPERATURE, 1),
        reduction="batchmean",
        log_target=True,
    )
    ce = F.cross_entropy(logits, y.reshape(-1).long(), label_smoothing=0.1)
    return torch.lerp(kd * TEMPERATURE * TEMPERATURE, ce, ALPHA) + F.mse_loss(model.hint(have), want).mul(0.2)


def build():
    return KWS()
