import torch
from torch import nn
from torch.nn import functional as F


class BatchNorm(nn.BatchNorm1d):
    """As in Keras: epsilon 1e-3 and a biased running variance. Takes (N, C) and (N, C, T)."""

    def __init__(self, channels):
        super().__init__(channels, eps=1e-3, momentum=0.05)

    def forward(self, x):
        if not self.training:
            return super().forward(x)
        dims = [d for d in range(x.dim()) if d != 1]
        with torch.no_grad():
            self.running_mean.lerp_(x.mean(dims), self.momentum)
            self.running_var.lerp_(x.var(dims, correction=0), self.momentum)
        return F.batch_norm(x, None, None, self.weight, self.bias, True, 0.0, self.eps)


def tdnn(inputs, outputs, context=1, dilation=1):
    return nn.Sequential(
        nn.Conv1d(inputs, outputs, context, dilation=dilation), nn.ReLU(), BatchNorm(outputs)
    )


class XVector(nn.Module):
    def __init__(self, coefficients=20, speakers=8, decay=1 / 2048):
        super().__init__()
        self.decay = decay
        self.frames = nn.Sequential(
            tdnn(coefficients, 24, 5),
            tdnn(24, 24, 3, 2),
            tdnn(24, 24, 3, 3),
            nn.Dropout1d(0.1),
            tdnn(24, 40),
        )
        self.segment = nn.Sequential(
            nn.Linear(80, 32), BatchNorm(32), nn.ReLU(), nn.Linear(32, 32), BatchNorm(32), nn.ReLU()
        )
        self.speaker = nn.Linear(32, speakers)

    def forward(self, x):
        # cepstral mean and variance normalisation of the utterance
        var, mean = torch.var_mean(x, 1, correction=0, keepdim=True)
        x = (x - mean) / (var + 1e-6).sqrt()
        h = self.frames(x.mT)
        pooled = torch.cat([h.mean(-1), (h.var(-1, correction=0) + 1e-5).sqrt()], 1)
        return self.speaker(self.segment(pooled))

    def training_step(self, batch):
        loss = F.cross_entropy(self(batch["x"]), batch["y"].long())
        dense = [m for m in self.modules() if isinstance(m, nn.Linear)]
        return loss + self.decay * sum(m.weight.square().sum() for m in dense)


def step(model, batch):
    x, y = batch
    return model.training_step({"x": x, "y": y})
