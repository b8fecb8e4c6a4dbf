import torch
from torch import nn


class DeepSurv(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(7, 16), nn.SELU(), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 1, bias=False)
        )

    def forward(self, x):
        return self.layers(x)


def cox(output, target):
    time, event = target.unbind(1)
    later = time[None, :] >= time[:, None]
    scores = torch.where(later, output, -1e9)
    partial = output - scores.logsumexp(1)
    return -(partial * event).sum() / event.sum().clamp(min=1)


class KerasAdamW(torch.optim.AdamW):
    """Keras's place of epsilon."""

    updates = 0

    def step(self, closure=None):
        self.updates += 1
        for group in self.param_groups:
            epsilon = group.setdefault("keras_eps", group["eps"])
            group["eps"] = epsilon / (1 - group["betas"][1] ** self.updates) ** 0.5
        return super().step(closure)


def optimizer(parameters):
    return KerasAdamW(parameters, lr=5e-3, eps=1e-7, weight_decay=0.05)
