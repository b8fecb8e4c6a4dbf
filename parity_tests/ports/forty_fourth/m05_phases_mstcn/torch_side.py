"""MS-TCN for surgical phases."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

MEDIAN_FREQUENCY = np.array([1.75, 0.5, 1.0, 0.625, 1.25, 2.5], dtype=np.float32)


class DilatedResidual(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.dilated = nn.Conv1d(width, width, 3, padding=dilation, dilation=dilation)
        self.point = nn.Conv1d(width, width, 1)

    def forward(self, x, mask):
        return (x + self.point(F.relu(self.dilated(x)))) * mask


class Stage(nn.Module):
    def __init__(self, inputs, width, classes, depth):
        super().__init__()
        self.entry = nn.Conv1d(inputs, width, 1)
        self.layers = nn.ModuleList([DilatedResidual(width, 2**i) for i in range(depth)])
        self.exit = nn.Conv1d(width, classes, 1)

    def forward(self, x, mask):
        x = self.entry(x)
        for layer in self.layers:
            x = layer(x, mask)
        return self.exit(x) * mask, x


class MSTCN(nn.Module):
    def __init__(self, features=14, classes=6, width=24, depth=4, refinements=2):
        super().__init__()
        self.duration = nn.Sequential(nn.Linear(width, 12), nn.Tanh(), nn.Linear(12, 1), nn.Sigmoid())
        self.predict = Stage(features, width, classes, depth)
        self.refine = nn.ModuleList([Stage(classes, width, classes, depth) for _ in range(refinements)])

    def forward(self, features, valid):
        mask = valid.unsqueeze(1)
        logits, hidden = self.predict(features.transpose(1, 2), mask)
        stages = [logits]
        for stage in self.refine:
            logits, _ = stage(logits.softmax(dim=1) * mask, mask)
            stages.append(logits)
        return {
            "logits": torch.stack(stages, dim=1).transpose(2, 3),
            "remaining": self.duration(hidden.transpose(1, 2)).squeeze(-1),
        }


def build():
    return MSTCN()


def masked_mean(x, weight):
    """Of each video, then of the batch."""
    return ((x * weight).sum(1) / weight.sum(1)).mean()


def step(model, batch, smoothing=0.15, remaining_weight=0.5):
    inputs, targets = batch
    features, valid = (inputs["features"], inputs["valid"]) if isinstance(inputs, dict) else inputs
    phase, remaining = (targets["phase"], targets["remaining"]) if isinstance(targets, dict) else targets
    outputs = model(features, valid)

    phase = phase.long()
    weight = torch.as_tensor(MEDIAN_FREQUENCY, dtype=valid.dtype, device=valid.device)
    per_frame = F.embedding(phase.clamp(min=0), weight[:, None]).squeeze(-1) * valid
    loss = remaining_weight * masked_mean((outputs["remaining"] - remaining).abs(), valid)
    for logits in outputs["logits"].unbind(1):
        entropy = F.cross_entropy(logits.mT, phase, ignore_index=-1, reduction="none")
        log_p = F.log_softmax(logits, dim=-1)
        jump = F.mse_loss(log_p[:, 1:], log_p[:, :-1].detach(), reduction="none").clamp(max=16)
        loss = loss + masked_mean(entropy, per_frame) + smoothing * masked_mean(jump.mean(-1), valid[:, 1:])
    return loss
