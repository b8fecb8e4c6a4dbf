"""EEGNet in PyTorch. Signals are (batch, electrodes, time, 1), as recorded for the Keras model."""

import torch
import torch.nn.functional as F
from torch import nn


class Norm(nn.Module):
    """Batch norm over all axes but the second; moving variance as Keras keeps it (biased)."""

    def __init__(self, features, keep=0.99, eps=1e-3):
        super().__init__()
        self.keep, self.eps = keep, eps
        self.gamma = nn.Parameter(torch.ones(features))
        self.beta = nn.Parameter(torch.zeros(features))
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("var", torch.ones(features))

    def forward(self, x):
        if self.training:
            axes = [a for a in range(x.dim()) if a != 1]
            var, mean = torch.var_mean(x, dim=axes, correction=0)
            with torch.no_grad():
                self.mean.mul_(self.keep).add_(mean, alpha=1 - self.keep)
                self.var.mul_(self.keep).add_(var, alpha=1 - self.keep)
        else:
            mean, var = self.mean, self.var
        scale = self.gamma * torch.rsqrt(var + self.eps)
        shape = (1, -1) + (1,) * (x.dim() - 2)
        return x * scale.view(shape) + (self.beta - mean * scale).view(shape)


class EEGNet(nn.Module):
    def __init__(self, electrodes=6, samples=64, classes=4, f1=4, depth=2, f2=6):
        super().__init__()
        self.temporal = nn.Conv1d(1, f1, 16, bias=False)
        self.norm1 = Norm(f1)
        # One mixture of the electrodes for each (filter, copy).
        self.spatial = nn.Parameter(torch.randn(f1, depth, electrodes) / electrodes**0.5)
        self.norm2 = Norm(f1 * depth)
        self.depthwise = nn.Conv1d(f1 * depth, f1 * depth, 8, groups=f1 * depth, bias=False)
        self.pointwise = nn.Linear(f1 * depth, f2, bias=False)
        self.norm3 = Norm(f2)
        self.drop1, self.drop2 = nn.Dropout(0.25), nn.Dropout(0.25)
        self.logits = nn.Linear(f2 * (samples // 16), classes)

    def forward(self, eeg):
        n, c, t, _ = eeg.shape
        x = self.temporal(F.pad(eeg.reshape(n * c, 1, t), (7, 8)))
        x = x.unflatten(0, (n, c)).transpose(1, 2)  # batch, filter, electrode, time
        x = self.norm1(x)
        x = torch.einsum("nfct,fdc->nfdt", x, self.spatial).flatten(1, 2)
        x = self.drop1(F.avg_pool1d(F.elu(self.norm2(x)), 4))
        x = self.depthwise(F.pad(x, (3, 4)))
        x = self.pointwise(x.transpose(1, 2)).transpose(1, 2)
        x = self.drop2(F.avg_pool1d(F.elu(self.norm3(x)), 4))
        return self.logits(x.transpose(1, 2).flatten(1))


def optimizer(model):
    # The L2 penalty (1 / 64) of the classifier's kernel is decay of twice its factor here.
    rest = [p for name, p in model.named_parameters() if name != "logits.weight"]
    groups = [{"params": rest}, {"params": [model.logits.weight], "weight_decay": 1 / 32}]
    return torch.optim.SGD(groups, lr=1 / 16, momentum=0.875, nesterov=True)
