import torch
from torch import nn


class Mlp(nn.Sequential):
    def __init__(self, n, hidden):
        super().__init__(nn.Linear(n, hidden), nn.GELU(), nn.Linear(hidden, n))


class MixerBlock(nn.Module):
    def __init__(self, tokens, dim):
        super().__init__()
        self.norm_t = nn.LayerNorm(dim, eps=1e-6)
        self.mlp_t = Mlp(tokens, 2 * tokens)
        self.norm_c = nn.LayerNorm(dim, eps=1e-6)
        self.mlp_c = Mlp(dim, 2 * dim)

    def forward(self, x):
        x = x + self.mlp_t(self.norm_t(x).mT).mT
        return x + self.mlp_c(self.norm_c(x))


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.patchify = nn.Conv2d(3, 16, 4, stride=4)
        self.blocks = nn.Sequential(*[MixerBlock(9, 16) for _ in range(2)])
        self.norm = nn.LayerNorm(16, eps=1e-6)
        self.fc = nn.Linear(16, 4)

    def forward(self, x):
        x = self.patchify(x.permute(0, 3, 1, 2)).flatten(2).transpose(1, 2)
        return self.fc(self.norm(self.blocks(x)).mean(1))


def build():
    return Mixer()


def optimizer(params):
    decay, rest = [], []
    for p in params:
        (decay if p.ndim > 1 else rest).append(p)
    groups = [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
    return torch.optim.SGD(groups, lr=0.02, momentum=0.9)
