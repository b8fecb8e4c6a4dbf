import torch
import torch.nn as nn
import torch.nn.functional as F


def squash(s, dim=-1):
    sq = (s**2).sum(dim, keepdim=True)
    return sq / (1 + sq) * s / torch.sqrt(sq + 1e-7)


class DigitCaps(nn.Module):
    def __init__(self, in_caps, in_dim, num, dim, routings=3):
        super().__init__()
        self.weight = nn.Parameter(0.3 * torch.randn(in_caps, num, in_dim, dim))
        self.routings = routings

    def forward(self, u):  # (batch, in_caps, in_dim)
        u_hat = torch.einsum("bid,ijdo->bijo", u, self.weight)
        b = u_hat.new_zeros(u_hat.shape[:3])
        for it in range(self.routings):
            c = b.softmax(dim=1)
            v = squash((c.unsqueeze(-1) * u_hat).sum(dim=1))
            if it + 1 < self.routings:
                b = b + (u_hat * v.unsqueeze(1)).sum(-1)
        return v


class MeterCapsNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 16, 5)
        self.primary = nn.Conv2d(16, 16, 3, stride=2)
        self.digits = DigitCaps(18, 8, 6, 6)

    def forward(self, x):  # (batch, 12, 12)
        h = F.relu(self.conv(x.unsqueeze(1)))
        h = self.primary(h).permute(0, 2, 3, 1)
        h = squash(h.reshape(len(x), 18, 8))
        return torch.sqrt((self.digits(h) ** 2).sum(-1) + 1e-7)


def margin_loss(lengths, y):
    t = F.one_hot(y.view(-1).long(), 6).to(lengths.dtype)
    pos = F.relu(0.9 - lengths) ** 2
    neg = F.relu(lengths - 0.1) ** 2
    return (t * pos + 0.5 * (1 - t) * neg).sum(-1).mean()


def build():
    return MeterCapsNet()
