import torch
import torch.nn.functional as F
from torch import nn


class Down(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 3, stride=2)
        self.act = nn.PReLU(cout)

    def forward(self, x):
        return self.act(self.conv(F.pad(x, (0, 1, 0, 1))))


class Denoiser(nn.Module):
    def __init__(self, code=10):
        super().__init__()
        self.down1 = Down(1, 8)
        self.down2 = Down(8, 12)
        self.code = nn.Conv2d(12, code, 1)
        self.deconv = nn.ConvTranspose2d(code, 10, 3, stride=2)
        self.refine = nn.Conv2d(10, 6, 3, padding=1)
        self.pixels = nn.Conv2d(6, 1, 1)

    def forward(self, noisy):
        z = self.code(self.down2(self.down1(noisy)))
        x = self.deconv(z)[:, :, :-1, :-1]
        x = F.leaky_relu(x, 0.2)
        x = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
        x = F.elu(self.refine(x))
        return torch.sigmoid(self.pixels(x))


def build():
    return Denoiser()


def optimizer(params):
    opt = torch.optim.SGD(params, lr=0.5)
    return opt, torch.optim.lr_scheduler.MultiStepLR(opt, milestones=[10, 16], gamma=0.2)
