import torch.nn as nn
import torch.nn.functional as F


class CausalConv1d(nn.Conv1d):
    def forward(self, x):
        return super().forward(F.pad(x, ((self.kernel_size[0] - 1) * self.dilation[0], 0)))


class ChannelNorm(nn.LayerNorm):
    def forward(self, x):
        return super().forward(x.transpose(1, 2)).transpose(1, 2)


class SELayer(nn.Module):
    def __init__(self, channel, reduction=4):
        super().__init__()
        self.fc = nn.Sequential(
            nn.Linear(channel, channel // reduction),
            nn.ReLU(),
            nn.Linear(channel // reduction, channel),
            nn.Sigmoid(),
        )

    def forward(self, x):
        return x * self.fc(x.mean(-1)).unsqueeze(-1)


class TemporalBlock(nn.Module):
    def __init__(self, n_in, n_out, dilation):
        super().__init__()
        self.conv1 = CausalConv1d(n_in, n_out, 3, dilation=dilation)
        self.norm1 = ChannelNorm(n_out, eps=1e-3)
        self.conv2 = CausalConv1d(n_out, n_out, 3, dilation=dilation)
        self.norm2 = ChannelNorm(n_out, eps=1e-3)
        self.se = SELayer(n_out)
        self.match = nn.Conv1d(n_in, n_out, 1) if n_in != n_out else nn.Identity()

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)))
        y = F.relu(self.se(self.norm2(self.conv2(y))))
        return F.relu(y + self.match(x))


class SETCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(TemporalBlock(4, 12, 1), TemporalBlock(12, 12, 2), TemporalBlock(12, 16, 4))
        self.fc = nn.Linear(16, 4)

    def forward(self, signal):
        return self.fc(self.net(signal.transpose(1, 2))[..., -1])


def build():
    return SETCN()


def loss(outputs, targets):
    return F.cross_entropy(outputs, targets.long())
