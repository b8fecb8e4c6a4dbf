import torch
import torch.nn.functional as F
from torch import nn

MARGIN = 0.4


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 12, 3, stride=2, bias=False)
        self.norm1 = nn.GroupNorm(4, 12, eps=1e-3)
        self.pool = nn.AvgPool2d(3, stride=2, padding=1)
        self.conv2 = nn.Conv2d(12, 24, 3, padding=1, bias=False)
        self.norm2 = nn.GroupNorm(4, 24, eps=1e-3)
        self.act = nn.LeakyReLU(0.1)
        self.dropout = nn.Dropout(0.25)
        self.embed = nn.Linear(24 * 5 * 5, 16)

    def forward(self, x):
        x = F.pad(x, (0, 1, 0, 1))
        x = self.act(self.norm1(self.conv1(x)))
        x = self.pool(x)
        x = self.act(self.norm2(self.conv2(x)))
        x = x.permute(0, 2, 3, 1).flatten(1)
        return F.normalize(self.embed(self.dropout(x)), dim=1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()

    def forward(self, anchor, positive, negative):
        return torch.cat([self.encoder(x) for x in (anchor, positive, negative)], dim=1)


def triplet(output, target):
    a, p, n = output.chunk(3, dim=1)
    near = 1 - F.cosine_similarity(a, p)
    far = 1 - F.cosine_similarity(a, n)
    losses = F.relu(near - far + MARGIN * target.view(-1))
    active = (losses > 0).sum().clamp(min=1)
    return losses.sum() / active
