import torch
from torch import nn
from torch.nn import functional as F


class Encoder(nn.Module):
    def __init__(self, features=18, width=16):
        super().__init__()
        self.wide = nn.Linear(features, 40)
        self.norm = nn.LayerNorm(40)
        self.code = nn.Linear(40, width, bias=False)

    def forward(self, x):
        return F.normalize(self.code(F.leaky_relu(self.norm(self.wide(x)), 0.125)), dim=-1)


class Triplets(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()

    def forward(self, anchor, positive, negative):
        codes = self.encoder(torch.cat([anchor, positive, negative]))
        return torch.stack(codes.chunk(3), 1)


def triplet(codes, margin):
    anchor, positive, negative = codes.unbind(1)
    near = (anchor - positive).norm(dim=-1)
    far = (anchor - negative).norm(dim=-1)
    return F.relu(near - far + margin.view(-1)).mean()
