import torch
import torch.nn.functional as F
from torch import nn

SMOOTHING = 0.1


class ConvUnit(nn.Sequential):
    def __init__(self, cin, cout, k=1, stride=1):
        pad = [] if stride == 1 else [nn.ZeroPad2d((0, 1, 0, 1))]
        super().__init__(
            *pad,
            nn.Conv2d(cin, cout, k, stride, padding=k // 2 if stride == 1 else 0, bias=False),
            nn.BatchNorm2d(cout, eps=1e-3, momentum=0.03),
            nn.SiLU(inplace=True),
        )


class Bottleneck(nn.Module):
    def __init__(self, ch):
        super().__init__()
        self.cv1 = ConvUnit(ch, ch)
        self.cv2 = ConvUnit(ch, ch, 3)

    def forward(self, x):
        return x + self.cv2(self.cv1(x))


class C3(nn.Module):
    def __init__(self, ch, n):
        super().__init__()
        c_ = ch // 2
        self.cv1 = ConvUnit(ch, c_)
        self.cv2 = ConvUnit(ch, c_)
        self.cv3 = ConvUnit(2 * c_, ch)
        self.m = nn.Sequential(*[Bottleneck(c_) for _ in range(n)])

    def forward(self, x):
        return self.cv3(torch.cat((self.m(self.cv1(x)), self.cv2(x)), 1))


class SPPF(nn.Module):
    def __init__(self, ch, k=5):
        super().__init__()
        self.cv1 = ConvUnit(ch, ch // 2)
        self.cv2 = ConvUnit(2 * ch, ch)
        self.k = k

    def forward(self, x):
        levels = [self.cv1(x)]
        for _ in range(3):
            levels.append(F.max_pool2d(levels[-1], self.k, 1, self.k // 2))
        return self.cv2(torch.cat(levels, 1))


class CapNet(nn.Module):
    def __init__(self, nc=5):
        super().__init__()
        self.classifier = nn.Linear(32, nc)
        self.backbone = nn.Sequential(
            ConvUnit(3, 8, 3, 2),
            ConvUnit(8, 16, 3, 2),
            C3(16, 1),
            ConvUnit(16, 32, 3, 2),
            C3(32, 2),
            SPPF(32),
        )

    def forward(self, image):
        x = image.permute(0, 3, 1, 2) / 255
        return self.classifier(self.backbone(x).mean((2, 3)))


def build():
    return CapNet()


_weights = torch.tensor([0.6, 1.3, 1.1, 1.9, 0.8])


def loss(outputs, targets):
    y = targets.reshape(-1).long()
    ce = F.cross_entropy(outputs, y, label_smoothing=SMOOTHING, reduction="none")
    return (ce * _weights.to(outputs)[y]).mean()


class ClippedSGD(torch.optim.SGD):
    """SGD that scales the gradients to a global norm of at most max_norm first."""

    def __init__(self, params, max_norm, **kwargs):
        super().__init__(params, **kwargs)
        self.max_norm = max_norm

    @torch.no_grad()
    def step(self, closure=None):
        grads = [p.grad for g in self.param_groups for p in g["params"] if p.grad is not None]
        norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in grads]))
        if norm > self.max_norm:
            torch._foreach_mul_(grads, (self.max_norm / norm).item())
        return super().step(closure)


def optimizer(params):
    return ClippedSGD(params, max_norm=1.0, lr=0.03, momentum=0.9, nesterov=True)
