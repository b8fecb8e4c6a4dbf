import torch
from torch import nn
from torch.nn.functional import pad, silu


def conv(a, b, k=3, **kw):
    return nn.Conv2d(a, b, k, padding=k // 2, **kw)


class Res(nn.Module):
    def __init__(self, a, b, emb=20):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(4, a, eps=1e-3), conv(a, b)
        self.film = nn.Linear(emb, 2 * b)
        self.norm2, self.conv2 = nn.GroupNorm(4, b, eps=1e-3), conv(b, b)
        self.skip = conv(a, b, 1) if a != b else nn.Identity()

    def forward(self, x, emb):
        h = self.conv1(silu(self.norm1(x)))
        scale, shift = self.film(emb)[..., None, None].chunk(2, 1)
        h = torch.addcmul(shift, self.norm2(h), scale + 1)
        return (self.skip(x) + self.conv2(silu(h))) * 2**-0.5


class Denoiser(nn.Module):
    sd = 0.5

    def __init__(self):
        super().__init__()
        self.register_buffer("octaves", 2.0 ** torch.arange(6))
        self.emb = nn.Sequential(nn.Linear(12, 20), nn.SiLU(), nn.Linear(20, 20), nn.SiLU())
        self.stem = conv(2, 8)
        self.down = Res(8, 8)
        self.shrink = nn.Conv2d(8, 12, 3, stride=2)
        self.middle = Res(12, 12)
        self.up = Res(20, 8)
        self.head = nn.Sequential(nn.GroupNorm(4, 8, eps=1e-3), nn.SiLU(), conv(8, 2))

    def unet(self, x, emb):
        fine = self.down(self.stem(x), emb)
        x = self.middle(self.shrink(pad(fine, (0, 1, 0, 1))), emb)
        x = x.repeat_interleave(2, dim=2).repeat_interleave(2, dim=3)
        return self.head(self.up(torch.cat((x, fine), 1), emb))

    def forward(self, noisy, sigma):
        phase = (sigma.log() * 0.25) * self.octaves.to(sigma.dtype)
        emb = self.emb(torch.cat((phase.sin(), phase.cos()), 1))
        s = sigma.reshape(-1, 1, 1, 1)
        norm = torch.hypot(s, s.new_full((), self.sd))
        return noisy * (self.sd / norm) ** 2 + self.unet(noisy / norm, emb) * (s * self.sd / norm)


def build():
    return Denoiser()
