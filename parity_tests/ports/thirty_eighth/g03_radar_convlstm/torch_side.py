import torch
import torch.nn.functional as F
from torch import nn


class ConvLSTMCell(nn.Module):
    """One convolution of [input, state] gives all four gates: i, f, c, o."""

    def __init__(self, cin, hidden, k=3):
        super().__init__()
        self.hidden = hidden
        self.gates = nn.Conv2d(cin + hidden, 4 * hidden, k, padding=k // 2)
        with torch.no_grad():
            self.gates.bias.zero_()
            self.gates.bias[hidden : 2 * hidden] = 1.0

    def forward(self, x, state):
        h, c = state
        i, f, g, o = self.gates(torch.cat([x, h], 1)).chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        return h, c


class Nowcast(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell1 = ConvLSTMCell(1, 6)
        self.norm = nn.LayerNorm(6)
        self.cell2 = ConvLSTMCell(6, 5)
        self.rain = nn.Conv2d(6, 1, 1)

    def forward(self, x):
        if x.shape[-1] == 1:
            x = x.movedim(-1, 2)  # (batch, time, 1, y, x)
        elif x.shape[1] == 1:
            x = x.transpose(1, 2)
        b, t, _, hgt, wid = x.shape
        s1 = (x.new_zeros(b, 6, hgt, wid), x.new_zeros(b, 6, hgt, wid))
        s2 = (x.new_zeros(b, 5, hgt, wid), x.new_zeros(b, 5, hgt, wid))
        for k in range(t):  # both layers go through time together
            s1 = self.cell1(x[:, k], s1)
            h = self.norm(s1[0].permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
            s2 = self.cell2(h, s2)
        out = self.rain(torch.cat([s2[0], x[:, -1]], 1))
        return torch.sigmoid(out).squeeze(1)


def gaussian(size=7, sigma=1.5):
    g = torch.exp(-((torch.arange(size, dtype=torch.float32) - (size - 1) / 2) ** 2) / (2 * sigma**2))
    return g / g.sum()


WINDOW = gaussian()


def ssim(a, b, c1=0.01**2, c2=0.03**2):
    w = WINDOW.to(a)

    def blur(t):
        t = F.conv2d(t.unsqueeze(1), w.view(1, 1, 1, -1))
        return F.conv2d(t, w.view(1, 1, -1, 1)).squeeze(1)

    ma, mb = blur(a), blur(b)
    va, vb, cov = blur(a * a) - ma**2, blur(b * b) - mb**2, blur(a * b) - ma * mb
    s = (2 * ma * mb + c1) * (2 * cov + c2) / ((ma**2 + mb**2 + c1) * (va + vb + c2))
    return s.mean((1, 2))


def nowcast_loss(outputs, targets):
    return 0.5 * (1 - ssim(targets, outputs)).mean() + 0.5 * F.l1_loss(outputs, targets)


def build():
    torch.manual_seed(0)
    return Nowcast()
