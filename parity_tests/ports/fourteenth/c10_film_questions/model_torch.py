import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence


class PlainBatchNorm(nn.Module):
    """Batch norm without scale and shift, with the settings and the biased variance of Keras."""

    def __init__(self, channels, eps=1e-3, momentum=0.01):
        super().__init__()
        self.eps, self.momentum = eps, momentum
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))

    def forward(self, x):
        if not self.training:
            return F.batch_norm(x, self.running_mean, self.running_var, eps=self.eps)
        with torch.no_grad():
            var, mean = torch.var_mean(x, dim=(0, 2, 3), correction=0)
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(var, self.momentum)
        return F.batch_norm(x, None, None, training=True, eps=self.eps)


def add_coordinates(x):
    b, _, h, w = x.shape
    xs = (2 * torch.arange(w, dtype=x.dtype, device=x.device) / w - 1).expand(b, 1, h, w)
    ys = (2 * torch.arange(h, dtype=x.dtype, device=x.device) / h - 1)[:, None].expand(b, 1, h, w)
    return torch.cat([x, xs, ys], dim=1)


class FiLMBlock(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels + 2, channels, 1)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = PlainBatchNorm(channels)

    def forward(self, x, gamma, beta):
        y = F.relu(self.conv1(add_coordinates(x)))
        y = self.norm(self.conv2(y))
        y = torch.addcmul(beta[..., None, None], gamma[..., None, None] + 1, y)
        return x + y.relu()


class FiLMNet(nn.Module):
    def __init__(self, words=15, answers=5, channels=8, blocks=2, hidden=12):
        super().__init__()
        self.embedding = nn.Embedding(words, 6)
        self.gru = nn.GRU(6, hidden, batch_first=True)
        self.film = nn.Linear(hidden, blocks * 2 * channels)
        self.stem = nn.Conv2d(3, channels, 3, padding=1)
        self.blocks = nn.ModuleList(FiLMBlock(channels) for _ in range(blocks))
        self.project = nn.Conv2d(channels, 12, 1)
        self.classifier = nn.Linear(12, answers)

    def forward(self, picture, question):
        lengths = question.ne(0).sum(1).cpu()
        packed = pack_padded_sequence(
            self.embedding(question), lengths, batch_first=True, enforce_sorted=False
        )
        _, h = self.gru(packed)
        film = self.film(h[-1]).view(len(picture), len(self.blocks), 2, -1)
        x = F.relu(self.stem(picture))
        for i, block in enumerate(self.blocks):
            x = block(x, film[:, i, 0], film[:, i, 1])
        return self.classifier(self.project(x).amax((2, 3)).relu())
