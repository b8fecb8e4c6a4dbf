import torch
from torch import nn
from torch.nn import functional as F


class HighwayLayer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.h = nn.Linear(width, width)
        self.t = nn.Linear(width, width)
        nn.init.constant_(self.t.bias, -1.0)

    def forward(self, x):
        h = F.relu(self.h(x))
        return torch.lerp(x, h, self.t(h).sigmoid())


class CharEncoder(nn.Module):
    def __init__(self, letters=27, width=6, filters=((1, 4), (2, 6), (3, 6)), layers=2):
        super().__init__()
        self.embed = nn.Embedding(letters, width)
        self.convs = nn.ModuleList(nn.Conv1d(width, n, size) for size, n in filters)
        total = sum(n for _, n in filters)
        self.highway = nn.Sequential(*[HighwayLayer(total) for _ in range(layers)])

    def forward(self, word):
        padding = word.eq(0).unsqueeze(1)
        x = self.embed(word).transpose(1, 2)
        features = []
        for conv in self.convs:
            (size,) = conv.kernel_size
            y = conv(F.pad(x, ((size - 1) // 2, size // 2)))
            features.append(y.masked_fill(padding, 0.0).amax(2).tanh())
        return self.highway(torch.cat(features, 1))


class CognateNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = CharEncoder()
        self.head = nn.Sequential(nn.Linear(32, 12), nn.ReLU(), nn.Linear(12, 1))

    def forward(self, first, second):
        # Both words in one batch.
        a, b = self.encoder(torch.cat([first, second])).chunk(2)
        return self.head(torch.cat([(a - b).abs(), a * b], dim=1))


def loss(outputs, targets):
    return F.binary_cross_entropy_with_logits(outputs, targets)
