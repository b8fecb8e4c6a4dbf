"""Seq2seq DeepLOB."""

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Sequential):
    def __init__(self, c_in, c_out, width, stride):
        super().__init__(
            nn.Conv2d(c_in, c_out, (1, width), stride=(1, stride)),
            nn.LeakyReLU(1 / 64),
            nn.Conv2d(c_out, c_out, (4, 1), padding="same"),
            nn.LeakyReLU(1 / 64),
            nn.Conv2d(c_out, c_out, (4, 1), padding="same"),
            nn.LeakyReLU(1 / 64),
        )


class Inception(nn.Module):
    def __init__(self, c):
        super().__init__()
        act = nn.LeakyReLU(1 / 64)
        self.branch3 = nn.Sequential(nn.Conv2d(c, c, 1), act, nn.Conv2d(c, c, (3, 1), padding=(1, 0)), act)
        self.branch5 = nn.Sequential(nn.Conv2d(c, c, 1), act, nn.Conv2d(c, c, (5, 1), padding=(2, 0)), act)
        self.branch_pool = nn.Sequential(
            nn.MaxPool2d((3, 1), stride=1, padding=(1, 0)), nn.Conv2d(c, c, 1), act
        )

    def forward(self, x):
        return torch.cat([self.branch3(x), self.branch5(x), self.branch_pool(x)], dim=1)


class AdditiveAttention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.w_q = nn.Linear(dim, dim, bias=False)
        self.w_k = nn.Linear(dim, dim)
        self.v = nn.Linear(dim, 1, bias=False)

    def forward(self, q, keys, values):
        e = self.v(torch.tanh(self.w_q(q)[:, None] + keys)).squeeze(-1)
        return torch.bmm(e.softmax(-1)[:, None], values).squeeze(1)


class DeepLOB(nn.Module):
    def __init__(self, levels=10, channels=8, dim=24, horizons=3, classes=3):
        super().__init__()
        self.horizons, self.classes = horizons, classes
        self.features = nn.Sequential(
            Block(1, channels, 2, 2),
            Block(channels, channels, 2, 2),
            Block(channels, channels, levels, 1),
            Inception(channels),
        )
        self.rnn = nn.LSTM(3 * channels, dim, batch_first=True)
        self.attn = AdditiveAttention(dim)
        self.cell = nn.LSTMCell(classes + dim, dim)
        self.classifier = nn.Linear(2 * dim, classes)
        for bias in (self.rnn.bias_hh_l0, self.cell.bias_hh):  # one bias per gate is enough
            nn.init.zeros_(bias).requires_grad_(False)

    @staticmethod
    def scale(x):
        x = x - x.median(dim=1, keepdim=True).values
        mad = x.abs().median(dim=1, keepdim=True).values
        return (x / (1.4826 * mad + 1e-2)).clamp(-8.0, 8.0)

    def forward(self, book):
        x = self.features(self.scale(book).unsqueeze(1))
        memory, (h, c) = self.rnn(x.squeeze(-1).transpose(1, 2))
        h, c = h[0], c[0]
        keys = self.attn.w_k(memory)
        prev = h.new_full((len(h), self.classes), 1.0 / self.classes)
        outputs = []
        for _ in range(self.horizons):
            ctx = self.attn(h, keys, memory)
            h, c = self.cell(torch.cat([prev, ctx], dim=-1), (h, c))
            logits = self.classifier(torch.cat([h, ctx], dim=-1))
            outputs.append(logits)
            prev = logits.detach().softmax(-1)
        return torch.stack(outputs, dim=1)


def build():
    return DeepLOB()


def loss(outputs, targets):
    nll = F.cross_entropy(outputs.transpose(1, 2), targets.long(), reduction="none")
    return (nll @ nll.new_tensor([0.5, 0.25, 0.25])).mean()
