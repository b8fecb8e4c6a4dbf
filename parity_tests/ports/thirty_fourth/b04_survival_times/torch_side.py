import torch
from torch import nn


class TFBatchNorm(nn.BatchNorm1d):
    """BatchNorm with the statistics of TensorFlow: moving averages at 0.99, of the biased variance."""

    def __init__(self, features, eps=1e-3, momentum=0.99):
        super().__init__(features, eps=eps, momentum=momentum)

    def forward(self, x):
        if not self.training:
            return super().forward(x)
        var, mean = torch.var_mean(x, dim=0, correction=0)
        with torch.no_grad():
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(var, self.momentum)
        return (x - mean) * torch.rsqrt(var + self.eps) * self.weight + self.bias


def make_net(covariates=12):
    return nn.Sequential(
        nn.Linear(covariates, 32, bias=False),
        TFBatchNorm(32),
        nn.ELU(),
        nn.Linear(32, 16, bias=False),
        TFBatchNorm(16),
        nn.Tanh(),
        nn.Linear(16, 1, bias=False),
    )


def cox_ph_loss(log_hazard, target):
    time, event = target.unbind(dim=1)
    order = torch.argsort(time, descending=True, stable=True)
    log_hazard, event = log_hazard.squeeze(1)[order], event[order]
    log_cumulative = torch.logcumsumexp(log_hazard, dim=0)
    return -((log_hazard - log_cumulative) * event).sum() / event.sum().clamp(min=1)


def build():
    return make_net()
