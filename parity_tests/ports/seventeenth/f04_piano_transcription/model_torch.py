"""Onsets and frames in PyTorch."""

import torch
from torch import nn
from torch.nn import functional as F


class Acoustic(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 3, padding=1)
        self.conv2 = nn.Conv2d(6, 8, 3, padding=1)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), (1, 2))
        x = F.max_pool2d(F.relu(self.conv2(x)), (1, 2))
        return x.permute(0, 2, 3, 1).flatten(2)


class LSTM(nn.LSTM):
    """With one trained bias, as Keras has it."""

    def __init__(self, inputs, units):
        super().__init__(inputs, units, batch_first=True, bidirectional=True)
        for name, bias in self.named_parameters():
            if name.startswith("bias_hh"):
                nn.init.zeros_(bias)
                bias.requires_grad_(False)


class Net(nn.Module):
    def __init__(self, pitches=10):
        super().__init__()
        self.onset_acoustic = Acoustic()
        self.onset_lstm = LSTM(48, 12)
        self.onset = nn.Linear(24, pitches)
        self.frame_acoustic = Acoustic()
        self.activation = nn.Linear(48, pitches)
        self.frame_lstm = LSTM(2 * pitches, 10)
        self.frame = nn.Linear(20, pitches)

    def forward(self, spectrogram):
        x, _ = self.onset_lstm(self.onset_acoustic(spectrogram))
        onset = self.onset(x)
        x = self.activation(self.frame_acoustic(spectrogram)).sigmoid()
        x, _ = self.frame_lstm(torch.cat([onset.sigmoid().detach(), x], dim=-1))
        return {"onset": onset, "frame": self.frame(x)}
