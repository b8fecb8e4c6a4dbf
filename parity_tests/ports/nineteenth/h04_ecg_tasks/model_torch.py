"""Rhythm and heart rate from two leads; the two losses are weighted by learned uncertainties (Kendall et al.)."""

import torch
import torch.nn.functional as F
from torch import nn


class ECGNet(nn.Module):
    def __init__(self, classes=3):
        super().__init__()
        self.conv1 = nn.Conv1d(2, 10, 7, stride=2)
        self.conv2 = nn.Conv1d(10, 14, 5, padding="same")
        self.lstm = nn.LSTM(14, 12, batch_first=True)
        # The original has one bias for each gate.
        nn.init.zeros_(self.lstm.bias_hh_l0)
        self.lstm.bias_hh_l0.requires_grad_(False)
        self.heads = nn.ModuleDict({"rhythm": nn.Linear(12, classes), "rate": nn.Linear(12, 1)})
        self.log_vars = nn.Parameter(torch.zeros(2))

    def forward(self, ecg):
        x = F.pad(ecg.transpose(1, 2), (2, 3))
        x = F.relu(self.conv1(x))
        x = F.max_pool1d(F.relu(self.conv2(x)), 2)
        _, (h, _) = self.lstm(x.transpose(1, 2))
        return {name: head(h[0]) for name, head in self.heads.items()}


def step(model, batch):
    inputs, targets = batch
    out = model(inputs)
    ce = F.cross_entropy(out["rhythm"], targets["rhythm"].flatten().long())
    mse = F.mse_loss(out["rate"].flatten(), targets["rate"].flatten().to(out["rate"].dtype))
    precision = torch.exp(-model.log_vars)
    return precision[0] * ce + 0.5 * precision[1] * mse + 0.5 * model.log_vars.sum()
