"""Character model of folk tunes."""

import torch
import torch.nn.functional as F
from torch import nn


class TuneLM(nn.Module):
    def __init__(self, vocab=28, dim=10, units=20):
        super().__init__()
        self.chars = nn.Embedding(vocab, dim)
        self.lstm = nn.LSTM(dim, units, num_layers=2, batch_first=True)
        for name, p in self.lstm.named_parameters():
            if name.startswith("bias_hh"):  # Keras has one bias
                nn.init.zeros_(p)
                p.requires_grad_(False)
        self.norm = nn.LayerNorm(units, eps=2**-16)
        self.next_char = nn.Linear(units, vocab)

    def forward(self, tune):
        out, _ = self.lstm(self.chars(tune.long()))
        return self.next_char(self.norm(out))


def build():
    return TuneLM()


def loss(logits, target):
    target = target.long()
    nll = F.cross_entropy(logits.transpose(1, 2), target, ignore_index=0, reduction="none")
    return (nll.sum(1) / (target != 0).sum(1)).mean()


class SGDW(torch.optim.SGD):
    """SGD with decoupled weight decay (torch's own weight_decay is L2 and enters the momentum)."""

    def __init__(self, params, lr, momentum, decay):
        params = [p for p in params if p.requires_grad]
        groups = [
            {"params": [p for p in params if p.ndim > 1], "decay": decay},
            {"params": [p for p in params if p.ndim <= 1], "decay": 0.0},
        ]
        super().__init__(groups, lr=lr, momentum=momentum)

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                p.mul_(1 - group["lr"] * group["decay"])
        return super().step(closure)


def optimizer(params):
    return SGDW(params, lr=0.5, momentum=0.75, decay=1 / 512)
