import torch
from torch import nn


class RunningCenter(nn.Module):
    def __init__(self, features, momentum=0.9):
        super().__init__()
        self.momentum = momentum
        self.register_buffer("running_mean", torch.zeros(features))

    def forward(self, x):
        if self.training:
            with torch.no_grad():
                self.running_mean.mul_(self.momentum).add_(x.mean(dim=(0, 1)), alpha=1 - self.momentum)
        return x - self.running_mean


class QRNNLayer(nn.Module):
    """Time first, as torch's recurrent layers: (T, B, C) -> (T, B, H)"""

    def __init__(self, input_size, hidden_size, window=3):
        super().__init__()
        self.hidden_size = hidden_size
        self.conv = nn.Conv1d(input_size, 3 * hidden_size, window, padding=window - 1)

    def forward(self, x):
        steps = x.size(0)
        gates = self.conv(x.permute(1, 2, 0))[..., -steps:].permute(2, 0, 1)
        z, f, o = gates.split(self.hidden_size, dim=-1)
        z, f = torch.tanh(z), torch.sigmoid(f)
        c = torch.zeros_like(z[0])
        cells = []
        for z_t, f_t in zip(z, f):
            c = torch.lerp(z_t, c, f_t)
            cells.append(c)
        return torch.stack(cells) * o.sigmoid()


class Net(nn.Module):
    def __init__(self, sensors=3, hidden=20, classes=4):
        super().__init__()
        self.center = RunningCenter(sensors)
        self.layer1 = QRNNLayer(sensors, hidden)
        self.drop = nn.Dropout(0.1)
        self.layer2 = QRNNLayer(hidden, hidden)
        self.fc = nn.Linear(hidden, classes)

    def forward(self, signal, length):
        x = self.center(signal).transpose(0, 1)
        x = self.layer2(self.drop(self.layer1(x)))
        batch = torch.arange(x.size(1), device=x.device)
        return self.fc(x[length.long() - 1, batch])
