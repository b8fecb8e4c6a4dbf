import torch
import torch.nn as nn
import torch.nn.functional as F


class SincConv(nn.Module):
    def __init__(self, filters=8, kernel_size=31, min_low=0.01, min_band=0.02):
        super().__init__()
        self.min_low, self.min_band = min_low, min_band
        edges = torch.linspace(0.01, 0.45, filters + 1)
        self.low = nn.Parameter(edges[:-1].clone())
        self.band = nn.Parameter(edges.diff())
        self.register_buffer("window", torch.hamming_window(kernel_size), persistent=False)
        self.register_buffer("n", torch.arange(kernel_size) - (kernel_size - 1) / 2, persistent=False)

    def forward(self, x):
        low = self.min_low + self.low.abs()
        high = (low + self.min_band + self.band.abs()).clamp(max=0.5)
        low, high = low.unsqueeze(1), high.unsqueeze(1)
        bandpass = 2 * high * torch.sinc(2 * high * self.n) - 2 * low * torch.sinc(2 * low * self.n)
        kernel = bandpass * self.window / (2 * (high - low))
        return F.conv1d(x.unsqueeze(1), kernel.unsqueeze(1))


class BearingNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.sinc = SincConv()
        self.norm = nn.LayerNorm(8)
        self.conv = nn.Conv1d(8, 12, 5)
        self.fault = nn.Linear(12 * 10, 4)

    def forward(self, x):  # (batch, 128)
        h = F.max_pool1d(self.sinc(x).abs(), 4)
        h = self.norm(h.transpose(1, 2)).transpose(1, 2)
        h = F.avg_pool1d(F.leaky_relu(self.conv(h), 0.25), 2)
        return self.fault(h.transpose(1, 2).flatten(1))


smoothed_ce = nn.CrossEntropyLoss(label_smoothing=0.1)


def optimizer(params):
    opt = torch.optim.SGD(params, lr=0.03125, momentum=0.75)
    return opt, torch.optim.lr_scheduler.StepLR(opt, step_size=5, gamma=0.5)


def build():
    return BearingNet()
