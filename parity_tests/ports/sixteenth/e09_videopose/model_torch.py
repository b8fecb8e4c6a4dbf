import torch
import torch.nn.functional as F
from torch import nn

SKELETON = [0, 0, 1, 2, 0, 4, 0, 6]


class Norm(nn.BatchNorm1d):
    """Batch norm with Keras's running statistics: those of the batch as they are."""

    def forward(self, x):
        if self.training:
            with torch.no_grad():
                variance, mean = torch.var_mean(x, dim=(0, 2), correction=0)
                self.running_mean += self.momentum * (mean - self.running_mean)
                self.running_var += self.momentum * (variance - self.running_var)
            return F.batch_norm(x, None, None, self.weight, self.bias, True, eps=self.eps)
        return super().forward(x)


class TemporalBlock(nn.Module):
    def __init__(self, channels, kernel, dilation, dropout):
        super().__init__()
        self.shift = dilation * (kernel - 1) // 2
        self.dilated = nn.Conv1d(channels, channels, kernel, dilation=dilation, bias=False)
        self.mix = nn.Conv1d(channels, channels, 1, bias=False)
        self.bn_dilated, self.bn_mix = Norm(channels), Norm(channels)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        y = self.dropout(self.bn_dilated(self.dilated(x)).relu())
        y = self.dropout(self.bn_mix(self.mix(y)).relu())
        return x[:, :, 2 * self.shift :] + y


class TemporalModel(nn.Module):
    def __init__(self, joints=8, channels=24, dropout=0.25):
        super().__init__()
        self.joints = joints
        self.expand = nn.Sequential(
            nn.Conv1d(2 * joints, channels, 3, bias=False), Norm(channels), nn.ReLU(), nn.Dropout(dropout)
        )
        self.blocks = nn.Sequential(
            TemporalBlock(channels, 3, 3, dropout), TemporalBlock(channels, 5, 3, dropout)
        )
        self.head = nn.Linear(channels, 3 * joints)

    def forward(self, x):
        x = self.blocks(self.expand(x.transpose(1, 2)))
        return self.head(x.mean(-1)).unflatten(1, (self.joints, 3))


def pose_loss(output, target):
    centred = [pose - pose[:, :1] for pose in (output, target)]
    position = (centred[1] - centred[0] + 1e-6).norm(dim=-1).mean()
    lengths = [(pose - pose[:, SKELETON] + 1e-6).norm(dim=-1) for pose in centred]
    return position + 0.5 * F.l1_loss(*lengths)
