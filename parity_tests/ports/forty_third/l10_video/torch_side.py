import torch
import torch.nn as nn
import torch.nn.functional as F


class ConvLSTM(nn.Module):
    def __init__(self, c_in, c, k=3):
        super().__init__()
        self.c = c
        self.from_input = nn.Conv2d(c_in, 4 * c, k, padding=k // 2)
        self.from_state = nn.Conv2d(c, 4 * c, k, padding=k // 2, bias=False)

    def forward(self, frames):
        """a list of frames -> the list of states"""
        b, _, hh, ww = frames[0].shape
        h = c = frames[0].new_zeros(b, self.c, hh, ww)
        states = []
        for x in frames:
            i, f, g, o = torch.chunk(self.from_input(x) + self.from_state(h), 4, 1)
            c = F.hardsigmoid(f) * c + F.hardsigmoid(i) * torch.tanh(g)
            h = F.hardsigmoid(o) * torch.tanh(c)
            states.append(h)
        return states


class MemoryBank(nn.Module):
    def __init__(self, slots, dim, shrink):
        super().__init__()
        self.bank = nn.Parameter(torch.randn(slots, dim) * 0.5)
        self.shrink = shrink

    @staticmethod
    def unit(v, dim):
        return v * torch.rsqrt(v.square().sum(dim, keepdim=True).clamp_min(1e-6))

    def forward(self, z):
        keys = self.unit(self.bank, 1)
        att = F.conv2d(self.unit(z, 1), keys[:, :, None, None]).mul(3.0).softmax(1)
        att = F.relu(att - self.shrink)
        att = att / att.sum(1, keepdim=True)
        read = torch.einsum("nshw,sc->nchw", att, self.bank)
        return torch.cat((z, read), dim=1)


class Same(nn.Module):
    """pads as TensorFlow does for strides of 2 and even sizes"""

    def __init__(self, k):
        super().__init__()
        total = k - 2
        self.pad = (total // 2, total - total // 2) * 2

    def forward(self, x):
        return F.pad(x, self.pad)


class Up(nn.ConvTranspose2d):
    def __init__(self, a, b, k):
        super().__init__(a, b, k, stride=2, padding=(k - 2) // 2)

    def forward(self, x):
        y = F.elu(super().forward(x))
        return y[..., : 2 * x.shape[-2], : 2 * x.shape[-1]]


class VideoAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            Same(5),
            nn.Conv2d(1, 8, 5, 2),
            nn.ELU(),
            Same(3),
            nn.Conv2d(8, 12, 3, 2),
            nn.GroupNorm(3, 12, eps=1e-3),
        )
        self.lstm_in = ConvLSTM(12, 10)
        self.memory = MemoryBank(12, 10, 0.03)
        self.lstm_out = ConvLSTM(20, 10)
        self.decoder = nn.Sequential(Up(10, 8, 3), Up(8, 8, 5), nn.Conv2d(8, 1, 3, padding=1), nn.Sigmoid())

    def forward(self, clip):
        frames = [self.encoder(f.permute(0, 3, 1, 2)) for f in clip.unbind(1)]
        codes = [self.memory(h) for h in self.lstm_in(frames)]
        codes.reverse()
        out = [self.decoder(h) for h in self.lstm_out(codes)]
        return torch.stack(out, 1).movedim(2, -1)


def loss(out, target):
    """clips (B, T, H, W, 1)"""
    total = F.mse_loss(out, target)
    for dim in (2, 3):
        total = total + 0.5 * F.l1_loss(out.diff(dim=dim).abs(), target.diff(dim=dim).abs())
    return total + F.mse_loss(out.diff(dim=1), target.diff(dim=1))


def build():
    return VideoAE()
