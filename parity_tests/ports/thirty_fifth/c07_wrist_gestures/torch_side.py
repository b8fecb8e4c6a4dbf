"""Wrist gestures, PyTorch."""

import torch
import torch.nn.functional as F
from torch import nn

L2 = 2e-3


class GestureNet(nn.Module):
    def __init__(self, axes=6, gestures=5):
        super().__init__()
        self.conv = nn.Conv1d(axes, 16, 3, stride=2)
        self.gru = nn.GRU(16, 12, batch_first=True, bidirectional=True)
        self.fc = nn.Linear(24, 16)
        self.gesture = nn.Linear(16, gestures)

    def forward(self, imu):
        x = F.relu(self.conv(imu.transpose(1, 2)))
        out, _ = self.gru(x.transpose(1, 2))
        return self.gesture(F.relu(self.fc(out[:, -1])))


def build():
    return GestureNet()


def optimizer(params):
    """The L2 penalty of the kernels goes into the optimizer; biases and the GRU have none."""
    params = list(params)
    # conv.weight, (8 tensors of the GRU), fc.weight, gesture.weight
    kernels = [p for p in params if p.ndim == 3] + [p for p in params[10:] if p.ndim == 2]
    chosen = {id(p) for p in kernels}
    rest = [p for p in params if id(p) not in chosen]
    return torch.optim.SGD(
        [{"params": kernels, "weight_decay": L2}, {"params": rest, "weight_decay": 0.0}], lr=0.05
    )
