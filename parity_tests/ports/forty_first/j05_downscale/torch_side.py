import torch
import torch.nn.functional as F
from torch import nn

WET = 0.1


def bernoulli_gamma(params, rain):
    logit, log_shape, log_scale = params.unbind(-1)
    rain = rain.squeeze(-1)
    wet = rain > WET
    occurrence = F.binary_cross_entropy_with_logits(logit, wet.to(logit.dtype))
    k, s = log_shape[wet].exp(), log_scale[wet].exp()
    amount = (rain[wet] - WET).clamp_min(1e-3)
    gamma = torch.distributions.Gamma(k, 1 / s, validate_args=False)
    return occurrence - gamma.log_prob(amount).mean()


def terrain(z):
    dy, dx = torch.gradient(z, dim=(2, 3))
    return torch.cat([z, 4 * dy, 4 * dx], 1)


class Up(nn.Module):
    def __init__(self, cin, cout, k):
        super().__init__()
        self.deconv = nn.ConvTranspose2d(cin, cout, k, stride=2)
        self.cut = k - 2

    def forward(self, x):
        h, w = x.shape[-2:]
        a = self.cut // 2
        return F.relu(self.deconv(x)[..., a : a + 2 * h, a : a + 2 * w])


class Downscaler(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(4, 24, 3, padding=1),
            nn.BatchNorm2d(24, eps=1e-3, momentum=0.01),
            nn.PReLU(24, init=0.0),
        )
        self.fine = nn.Sequential(nn.Conv2d(3, 12, 3, padding=1), nn.ReLU())
        self.mid = nn.Sequential(nn.AvgPool2d(2), nn.Conv2d(12, 12, 3, padding=1), nn.ReLU())
        self.up_a, self.up_b = Up(24, 24, 3), Up(24, 16, 4)
        self.merge = nn.Conv2d(36, 24, 3, padding=1)
        self.tail = nn.Sequential(
            nn.Conv2d(28, 28, 3, padding=1, groups=28, bias=False),
            nn.Conv2d(28, 16, 1),
            nn.ReLU(),
            nn.Conv2d(16, 3, 1),
        )

    def forward(self, coarse, elevation):
        t1 = self.fine(terrain(elevation.movedim(-1, 1)))
        x = self.up_a(self.stem(coarse.movedim(-1, 1)))
        x = F.relu(self.merge(torch.cat([x, self.mid(t1)], 1)))
        x = torch.cat([self.up_b(x), t1], 1)
        return self.tail(x).movedim(1, -1)


def build():
    return Downscaler()
