import torch
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    def __init__(self, cin=3, c=8, m=12):
        super().__init__()
        self.enc1 = nn.Conv2d(cin, c, 3, padding=1)
        self.enc2 = nn.Conv2d(c, m, 3, stride=2)
        self.gate = nn.Conv2d(m, m, 1)
        self.mid = nn.Conv2d(m, m, 3, padding=1)
        self.up = nn.ConvTranspose2d(m, c, 3, stride=2)
        self.dec = nn.Conv2d(2 * c, c, 3, padding=1)
        self.head = nn.Conv2d(c, 1, 1)

    def forward(self, frames):
        x = frames.permute(0, 3, 1, 2)
        c1 = F.silu(self.enc1(x))
        c2 = F.silu(self.enc2(F.pad(c1, (0, 1, 0, 1))))

        g = torch.sigmoid(self.gate(c2))
        m = torch.tanh(self.mid(c2))
        m = torch.addcmul(c2, g, m)

        up = self.up(m)[:, :, 1:, 1:]
        y = F.leaky_relu(torch.cat([up, c1], dim=1), 0.25)
        y = F.silu(self.dec(y))
        y = self.head(y) + x[:, -1:]
        return y.permute(0, 2, 3, 1)
