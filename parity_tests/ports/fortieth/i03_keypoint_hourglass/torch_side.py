import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Res(nn.Module):
    def __init__(self, c_in: int, c_out: int):
        super().__init__()
        mid = c_out // 2
        self.identity = nn.Identity() if c_in == c_out else nn.Conv2d(c_in, c_out, 1)
        self.branch = nn.Sequential(
            nn.GroupNorm(4, c_in, eps=1e-3),
            nn.ReLU(),
            nn.Conv2d(c_in, mid, 1, bias=False),
            nn.GroupNorm(4, mid, eps=1e-3),
            nn.ReLU(),
            nn.Conv2d(mid, c_out, 3, 1, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.identity(x).add(self.branch(x))


class Level(nn.Module):
    """One level of the hourglass; the inner one may be a further level."""

    def __init__(self, c: int, inner: nn.Module):
        super().__init__()
        self.enter = Res(c, c)
        self.inner = inner
        self.lat_dw = nn.Conv2d(c, c, 3, padding=1, groups=c, bias=False)
        self.lat_pw = nn.Conv2d(c, c, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.inner(self.enter(F.max_pool2d(x, 2)))
        y = F.interpolate(y, size=x.shape[-2:], mode="bilinear", align_corners=False)
        return y + self.lat_pw(self.lat_dw(x))


class KeypointNet(nn.Module):
    def __init__(self, keypoints: int = 4, beta: float = 8.0):
        super().__init__()
        self.beta = beta
        self.first = nn.Conv2d(1, 16, 5, stride=2)
        self.body = Level(16, Level(16, nn.Identity()))
        self.after = Res(16, 24)
        self.to_heat = nn.Conv2d(24, keypoints, 1)
        self.register_buffer("ticks", torch.linspace(0.5 / 16, 15.5 / 16, 16))

    def forward(self, image: Tensor) -> dict:
        x = image.permute(0, 3, 1, 2)
        x = self.first(F.pad(x, (1, 2, 1, 2))).relu_()
        heat = self.to_heat(self.after(self.body(x)))
        p = torch.softmax(self.beta * heat.flatten(2), -1).view_as(heat)
        xs = (p.sum(2) * self.ticks).sum(-1)
        ys = (p.sum(3) * self.ticks).sum(-1)
        return {"heat": heat.permute(0, 2, 3, 1), "coords": torch.stack((xs, ys), dim=-1)}


def build() -> nn.Module:
    return KeypointNet()


def heat_loss(output: Tensor, target: Tensor) -> Tensor:
    return (F.mse_loss(output, target, reduction="none") * torch.add(1.0, target, alpha=10.0)).mean()


def coord_loss(output: Tensor, target: Tensor) -> Tensor:
    xy, seen = target[..., :2], target[..., 2]
    h = F.huber_loss(output, xy, reduction="none", delta=0.1).sum(-1)
    return ((h * seen).sum(1) / seen.sum(1).clamp(min=1)).mean()
