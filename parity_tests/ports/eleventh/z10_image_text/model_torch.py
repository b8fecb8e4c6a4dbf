"""PyTorch port of the two towers and of their loss."""

import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence


class Downsample(nn.Conv2d):
    """Halves an even size; the window begins at the picture's edge and reaches over its end."""

    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs, kernel_size=3, stride=2)

    def forward(self, x):
        return F.relu(super().forward(F.pad(x, (0, 1, 0, 1))))


class ChannelNorm(nn.Module):
    def __init__(self, channels, eps=1e-5):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(channels, 1, 1))
        self.shift = nn.Parameter(torch.zeros(channels, 1, 1))
        self.eps = eps

    def forward(self, x):
        variance, mean = torch.var_mean(x, dim=1, correction=0, keepdim=True)
        return torch.addcmul(self.shift, (x - mean) / torch.sqrt(variance + self.eps), self.gain)


class Vision(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.stem = nn.Sequential(Downsample(3, 12), ChannelNorm(12), Downsample(12, 16))
        self.head = nn.Linear(16, dim, bias=False)

    def forward(self, image):
        return F.normalize(self.head(self.stem(image.movedim(-1, 1)).mean(dim=(-2, -1))), dim=-1)


class Language(nn.Module):
    def __init__(self, words, dim):
        super().__init__()
        self.table = nn.Embedding(words, 10)
        self.rnn = nn.GRU(10, 18, batch_first=True)
        self.head = nn.Linear(18, dim, bias=False)

    def forward(self, text):
        lengths = text.count_nonzero(dim=1).cpu()
        packed = pack_padded_sequence(self.table(text), lengths, batch_first=True, enforce_sorted=False)
        last = self.rnn(packed)[1][-1]
        return F.normalize(self.head(last), dim=-1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.language = Language(25, 16)
        self.vision = Vision(16)
        self.logit_scale = nn.Parameter(torch.tensor(math.log(8.0)))

    def forward(self, image, text):
        seen = self.vision(image) * self.logit_scale.clamp(max=4.6).exp()
        return torch.stack([seen, self.language(text)], dim=1)


def contrastive(outputs, topic):
    seen, read = outputs.unbind(1)
    similarity = seen @ read.mT
    target = F.normalize(topic.view(-1, 1).eq(topic.view(1, -1)).to(similarity.dtype), p=1, dim=1)
    # the positives' mean, against everything, both ways
    positives = 2 * (target * similarity).sum(dim=1)
    everything = similarity.logsumexp(dim=0) + similarity.logsumexp(dim=1)
    return 0.5 * (everything - positives).mean()
