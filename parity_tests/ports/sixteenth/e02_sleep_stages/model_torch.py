import torch
import torch.nn.functional as F
from torch import nn


class BatchNorm(nn.BatchNorm1d):
    """Biased running variance, as in Keras."""

    def forward(self, x):
        if not self.training:
            return super().forward(x)
        with torch.no_grad():
            self.running_mean.lerp_(x.mean((0, 2)), self.momentum)
            self.running_var.lerp_(x.var((0, 2), unbiased=False), self.momentum)
        return F.batch_norm(x, None, None, self.weight, self.bias, True, 0.0, self.eps)


class Same(nn.Module):
    """A convolution whose zeros are put as TensorFlow puts them: as few as the stride allows, the odd one behind."""

    def __init__(self, inputs, outputs, size, stride=1):
        super().__init__()
        self.size, self.stride = size, stride
        self.conv = nn.Conv1d(inputs, outputs, size, stride, bias=False)
        self.norm = BatchNorm(outputs)

    def forward(self, x):
        length = x.shape[-1]
        total = max((-(-length // self.stride) - 1) * self.stride + self.size - length, 0)
        return self.norm(self.conv(F.pad(x, (total // 2, total - total // 2)))).relu()


class Branch(nn.Sequential):
    def __init__(self, first, stride, pool, size):
        super().__init__(
            Same(1, 8, first, stride),
            Pool(pool),
            nn.Dropout(0.5),
            Same(8, 12, size),
            Same(12, 12, size),
            Pool(2),
        )


class Pool(nn.Module):
    """Windows that stand over are filled up on both sides, with nothing."""

    def __init__(self, size):
        super().__init__()
        self.size = size

    def forward(self, x):
        total = -x.shape[-1] % self.size
        return F.max_pool1d(F.pad(x, (total // 2, total - total // 2), value=float("-inf")), self.size)


class DeepSleep(nn.Module):
    def __init__(self, hidden=12, stages=5):
        super().__init__()
        self.fine = Branch(12, 3, 4, 5)
        self.coarse = Branch(40, 7, 2, 3)
        width = 12 * 5 + 12 * 4
        self.residual = nn.Linear(width, 2 * hidden)
        self.lstm = nn.LSTM(width, hidden, batch_first=True, bidirectional=True)
        for name, parameter in self.lstm.named_parameters():
            if "bias_hh" in name:  # Keras has one bias
                nn.init.zeros_(parameter).requires_grad_(False)
        self.drop_features = nn.Dropout(0.5)
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(2 * hidden, stages)

    def forward(self, eeg):
        """Epochs of samples, (batch, epochs, samples, 1), to logits of stages for each epoch."""
        x = eeg.flatten(0, 1).transpose(1, 2)
        x = torch.cat([branch(x).transpose(1, 2).flatten(1) for branch in (self.fine, self.coarse)], dim=1)
        x = self.drop_features(x).unflatten(0, eeg.shape[:2])
        return self.head(self.drop(self.lstm(x)[0] + self.residual(x).relu()))


def optimizer(model):
    """The L2 penalty of 1e-3 on the first filters of each branch is a decay of twice that."""
    decayed = [model.fine[0].conv.weight, model.coarse[0].conv.weight]
    rest = [p for p in model.parameters() if p.requires_grad and all(p is not d for d in decayed)]
    groups = [{"params": decayed, "weight_decay": 2e-3}, {"params": rest}]
    return torch.optim.SGD(groups, lr=0.02, momentum=0.9, nesterov=True)
