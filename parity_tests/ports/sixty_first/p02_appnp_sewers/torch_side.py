import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class Decoder(nn.Sequential):
    def __init__(self, n_in, n_hidden, n_out, act):
        super().__init__(nn.Linear(n_in, n_hidden), act, nn.Linear(n_hidden, n_out))


class APPNPSewer(nn.Module):
    """Keeps node features as (batch, channels, nodes)."""

    def __init__(self, n_features=6, dim=24, n_levels=4, hops=(4, 3)):
        super().__init__()
        self.hops = hops
        self.level_head = Decoder(2 * dim, 20, n_levels, nn.ReLU())
        self.gauge_head = Decoder(dim, 12, 1, nn.Tanh())
        self.alpha_logit = nn.Parameter(torch.full((len(hops), dim), -1.5))
        self.ln_weight = nn.Parameter(torch.ones(dim))
        self.ln_bias = nn.Parameter(torch.zeros(dim))
        self.conv1 = nn.Conv1d(n_features, dim, 1)
        self.conv2 = nn.Conv1d(dim, dim, 1)
        self.conv3 = nn.Conv1d(dim, dim, 1)

    def diffuse(self, h0, norm_adj, stage):
        a = self.alpha_logit[stage].sigmoid().view(1, -1, 1)
        h = h0
        for _ in range(self.hops[stage]):
            h = torch.lerp(torch.einsum("bcn,bmn->bcm", h, norm_adj), h0, a)
        return h

    def channel_norm(self, h):
        mu = h.mean(1, keepdim=True)
        var = (h - mu).pow(2).mean(1, keepdim=True)
        h = (h - mu) * torch.rsqrt(var + 1e-5)
        return h * self.ln_weight[:, None] + self.ln_bias[:, None]

    def forward(self, catchment, pipes, present):
        m = present.unsqueeze(1)
        adj = pipes + torch.diag_embed(present)
        inv_sqrt = adj.sum(2).clamp(min=1).pow(-0.5)
        adj = inv_sqrt.unsqueeze(2) * adj * inv_sqrt.unsqueeze(1)

        h = self.conv2(F.elu(self.conv1(catchment.transpose(1, 2)))) * m
        h = self.diffuse(h, adj, 0)
        h = self.channel_norm(h + F.elu(self.conv3(h))) * m
        h = self.diffuse(h, adj, 1)

        pooled_mean = torch.einsum("bcn,bn->bc", h, present) / present.sum(1, keepdim=True)
        pooled_max = h.masked_fill(m == 0, float("-inf")).amax(2)
        level = self.level_head(torch.cat((pooled_mean, pooled_max), 1))
        depth = F.softplus(self.gauge_head(h.transpose(1, 2)).squeeze(2))
        return {"depth": depth, "alarm": level}


def depth_loss(outputs, targets):
    seen = targets >= 0
    err = torch.where(seen, outputs - targets, torch.zeros_like(outputs))
    lc = err.abs() + torch.log1p(torch.exp(-2 * err.abs())) - math.log(2)
    weight = seen.to(lc.dtype)
    weight = weight / weight.sum(1, keepdim=True)
    return (weight * lc).sum() / len(outputs)


def alarm_loss(outputs, targets):
    cdf = outputs.softmax(1).cumsum(1)[:, :-1]
    levels = torch.arange(cdf.shape[1], device=cdf.device)
    reached = (targets.view(-1, 1) <= levels).to(cdf.dtype)
    return (cdf - reached).square().sum(1).mean()


def build():
    return APPNPSewer()
