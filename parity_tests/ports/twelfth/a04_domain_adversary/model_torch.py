"""The domain adversarial network in PyTorch."""

import torch
from torch import nn
from torch.nn import functional as F


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, strength):
        ctx.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return grad.neg() * ctx.strength, None


class ConvNormSiLU(nn.Module):
    """`SAME` in TensorFlow's sense: what is left over of the padding comes at the end."""

    def __init__(self, inputs, outputs, size, stride, padding):
        super().__init__()
        self.padding, self.stride = padding, stride
        self.weight = nn.Parameter(torch.empty(outputs, inputs, size))
        self.bias = nn.Parameter(torch.zeros(outputs))
        self.norm = nn.LayerNorm(outputs, eps=1e-3)
        nn.init.xavier_uniform_(self.weight)

    def forward(self, x):
        x = F.conv1d(F.pad(x, self.padding), self.weight, self.bias, self.stride)
        return F.silu(self.norm(x.mT).mT)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            ConvNormSiLU(3, 8, 5, stride=2, padding=(1, 2)),
            ConvNormSiLU(8, 12, 4, stride=1, padding=(1, 2)),
            nn.AdaptiveAvgPool1d(1),
            nn.Flatten(),
        )
        self.classifier = nn.Linear(12, 5)
        self.discriminator = nn.Sequential(nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 1))

    def forward(self, signal):
        x = self.features(signal.transpose(1, 2))
        return {"label": self.classifier(x), "domain": self.discriminator(Reversed.apply(x, 0.3))}


def loss(outputs, targets):
    logits, domain = outputs["label"], targets["domain"].reshape(-1).to(outputs["label"].dtype)
    labelled = F.cross_entropy(logits, targets["label"].reshape(-1).long(), reduction="none")
    source = domain == 0
    make = F.binary_cross_entropy_with_logits(outputs["domain"].squeeze(1), domain)
    return labelled[source].sum() / len(logits) + make
