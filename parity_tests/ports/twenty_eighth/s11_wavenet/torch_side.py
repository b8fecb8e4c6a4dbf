import torch
import torch.nn.functional as F
from torch import nn


class CausalConv1d(nn.Conv1d):
    def __init__(self, cin, cout, k, dilation=1):
        super().__init__(cin, cout, k, dilation=dilation, padding=(k - 1) * dilation)

    def forward(self, x):
        return super().forward(x)[..., : x.shape[-1]]


class WaveNet(nn.Module):
    def __init__(self, channels=12, skip=10, dilations=(1, 2, 4, 8), n_quantiles=3):
        super().__init__()
        self.channels, self.skip = channels, skip
        self.input_conv = CausalConv1d(2, channels, 3)
        self.dilated = nn.ModuleList([CausalConv1d(channels, 2 * channels, 2, d) for d in dilations])
        self.mix = nn.ModuleList([nn.Conv1d(channels, channels + skip, 1) for _ in dilations])
        self.post = nn.Sequential(
            nn.ReLU(), nn.Conv1d(skip, skip, 1), nn.ReLU(), nn.Conv1d(skip, n_quantiles, 1)
        )

    def forward(self, x):
        x = self.input_conv(x.mT)
        skips = []
        for conv, mix in zip(self.dilated, self.mix):
            f, g = conv(x).chunk(2, dim=1)
            r, s = mix(torch.tanh(f) * torch.sigmoid(g)).split([self.channels, self.skip], dim=1)
            x = x + r
            skips.append(s)
        total = torch.stack(skips).sum(0)
        return self.post(total[..., -1:]).squeeze(-1)


def build():
    return WaveNet()


def pinball(prediction, target):
    q = prediction.new_tensor([0.1, 0.5, 0.9])
    over = F.relu(prediction - target)
    under = F.relu(target - prediction)
    return (q * under + (1 - q) * over).mean()
