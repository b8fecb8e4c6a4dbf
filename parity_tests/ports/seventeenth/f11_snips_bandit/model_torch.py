"""A policy for placing offers in PyTorch."""

import torch
from torch import nn
from torch.nn import functional as F


class BatchNorm(nn.BatchNorm1d):
    """With Keras's momentum and epsilon, and the biased running variance."""

    def __init__(self, channels):
        super().__init__(channels, eps=1e-3, momentum=0.01)

    def forward(self, x):
        if not self.training:
            return super().forward(x)
        with torch.no_grad():
            self.running_mean.lerp_(x.mean(0), self.momentum)
            self.running_var.lerp_(x.var(0, unbiased=False), self.momentum)
        return F.batch_norm(x, None, None, self.weight, self.bias, True, 0.0, self.eps)


class Net(nn.Module):
    def __init__(self, sizes=(5, 8), width=6, context=7, actions=6):
        super().__init__()
        self.embedding = nn.Embedding(sum(sizes), width)
        self.register_buffer("offsets", torch.tensor([0, sizes[0]]))
        self.standardise = BatchNorm(context)
        self.hidden = nn.Linear(2 * width + context, 24)
        self.user = nn.Linear(24, 10)
        self.scores = nn.Linear(10, actions)

    def forward(self, place, context):
        x = self.embedding(place + self.offsets).flatten(1)
        x = torch.cat([x, self.standardise(context)], dim=1)
        x = F.elu(self.hidden(x))
        return self.scores(self.user(x))


def snips(scores, logged):
    action, reward, propensity = logged[:, 0].long(), logged[:, 1], logged[:, 2]
    log_policy = scores.log_softmax(-1)
    chosen = log_policy.gather(1, action[:, None])[:, 0].exp()
    weight = (chosen / propensity).clamp(max=8)
    value = (weight * reward).sum() / weight.sum()
    entropy = -(log_policy.exp() * log_policy).sum(-1).mean()
    return -value - 0.01 * entropy
