import torch
from torch import nn
from torch.nn import functional as F


class CANN(nn.Module):
    def __init__(self, brands=11, regions=22, widths=(20, 15, 10)):
        super().__init__()
        mean = torch.tensor([7.0, 11.0, 45.0, 60.0, 6.0, 3.5])
        var = torch.tensor([9.0, 30.0, 200.0, 225.0, 4.0, 6.0])
        self.register_buffer("mean", mean, persistent=False)
        self.register_buffer("std", var.sqrt(), persistent=False)
        self.brand = nn.Embedding(brands, 2)
        self.region = nn.Embedding(regions, 3)
        self.stages = nn.ModuleList()
        inputs = 6 + 5
        for width in widths:
            stage = nn.Sequential(
                nn.Linear(inputs, width), nn.Tanh(), nn.LayerNorm(width, eps=1e-4), nn.Dropout(0.05)
            )
            self.stages.append(stage)
            inputs = width + 5
        self.correction = nn.Linear(inputs, 1)
        self.credibility = nn.Parameter(torch.ones(()))

    def forward(self, numeric, brand, region, log_glm, exposure):
        policy = torch.cat([self.brand(brand.long().flatten()), self.region(region.long().flatten())], -1)
        h = (numeric - self.mean) / self.std
        for stage in self.stages:
            h = stage(torch.cat([h, policy], -1))
        log_rate = self.correction(torch.cat([h, policy], -1)) + self.credibility * log_glm
        return exposure * log_rate.exp()


def loss(expected, y):
    return F.poisson_nll_loss(expected, y.to(expected.dtype), log_input=False, full=False, eps=1e-7)
