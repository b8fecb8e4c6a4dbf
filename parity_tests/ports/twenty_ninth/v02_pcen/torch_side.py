import torch
import torch.nn.functional as F
from torch import nn


class PCEN(nn.Module):
    def __init__(self, bands, floor=1e-6):
        super().__init__()
        self.floor = floor
        self.smooth = nn.Parameter(torch.full((bands,), 0.08))
        self.alpha = nn.Parameter(torch.full((bands,), 0.9))
        self.delta = nn.Parameter(torch.full((bands,), 2.0))
        self.root = nn.Parameter(torch.full((bands,), 2.0))

    def ema(self, e):
        s = self.smooth.clamp(0, 1)
        state = torch.zeros_like(e[:, 0])
        out = []
        for frame in e.unbind(1):
            state = (1 - s) * state + s * frame
            out.append(state)
        return torch.stack(out, 1)

    def forward(self, e):
        m = self.ema(e)
        r = 1 / self.root.clamp(min=1)
        gain = (self.floor + m) ** -self.alpha.clamp(max=1)
        return (e * gain + self.delta) ** r - self.delta**r


class KWS(nn.Module):
    def __init__(self, bands=8, classes=5):
        super().__init__()
        self.front = PCEN(bands)
        self.conv = nn.Conv1d(bands, 12, 3, stride=2, padding=1)
        self.rnn = nn.GRU(12, 10, batch_first=True)
        self.out = nn.Linear(10, classes)

    def forward(self, x):
        z = self.front(x).transpose(1, 2)
        z = F.relu(self.conv(z))
        seq, _ = self.rnn(z.transpose(1, 2))
        return self.out(seq[:, -1])


def build():
    return KWS()
