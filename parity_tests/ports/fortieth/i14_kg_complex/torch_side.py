import math

import torch
import torch.nn.functional as F
from torch import nn


class Complex(nn.Module):
    """Table of complex numbers kept as real pairs, halves [re, im]."""

    def __init__(self, n, dim):
        super().__init__()
        self.raw = nn.Parameter(torch.empty(n, 2 * dim).uniform_(-0.7, 0.7))

    @staticmethod
    def pack(pairs):
        return torch.complex(*pairs.tensor_split(2, dim=-1))


class MixedScorer(nn.Module):
    def __init__(self, n_ent=50, n_rel=7, dim=12, margin=4.0):
        super().__init__()
        self.dim, self.margin = dim, margin
        self.ent = Complex(n_ent, dim)
        self.rel = Complex(n_rel, dim)
        self.angle = nn.Parameter(torch.empty(n_rel, dim).uniform_(-1, 1))
        self.complex_gain = nn.Parameter(torch.ones(()))
        self.refine = nn.Sequential(nn.LayerNorm(2 * dim, eps=1e-3), nn.Linear(2 * dim, 2 * dim), nn.Tanh())
        self.mix = nn.Sequential(nn.Linear(4 * dim, 10), nn.SELU(), nn.Linear(10, 1))

    def forward(self, head, relation, tails):
        ents = Complex.pack(self.ent.raw + self.refine(self.ent.raw))
        rel = Complex.pack(self.rel.raw)
        theta = self.angle * math.pi
        rot = torch.polar(torch.ones_like(theta), theta)
        # one gate per relation, then looked up
        gate = self.mix(torch.cat((rot.real, rot.imag, self.rel.raw), dim=-1)).squeeze(-1)
        relation = relation.long().squeeze(1)
        h, t = ents[head.long().squeeze(1)], ents[tails.long()]
        r1, r2, g = rot[relation], rel[relation], torch.sigmoid(gate[relation]).unsqueeze(1)
        dist = ((h * r1).unsqueeze(1) - t).abs().sum(-1)
        rotate = self.margin - dist / self.dim**0.5
        bilinear = torch.einsum("bd,bkd->bk", h * r2, t.conj()).real
        return torch.lerp(self.complex_gain * bilinear, rotate, g)


def build():
    return MixedScorer()


def self_adversarial_loss(scores, weight):
    pos, neg = scores.split([1, scores.shape[1] - 1], dim=1)
    attention = F.softmax(0.7 * neg.detach(), dim=1)
    loss = F.softplus(-pos).squeeze(1) + torch.linalg.vecdot(attention, F.softplus(neg))
    return loss.mul(weight.to(scores).squeeze(1)).mean() / 2


def optimizer(params):
    # keras adds its epsilon (1e-7) under the root
    opt = torch.optim.Adagrad(params, lr=0.05, initial_accumulator_value=0.05 + 1e-7, eps=0.0)
    return opt, torch.optim.lr_scheduler.LambdaLR(opt, lambda step: 1.0 / (1.0 + 0.5 * step / 20))
