import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class Pool(nn.Module):
    def __init__(self, size, hidden):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(size, hidden), nn.Tanh(), nn.Linear(hidden, 1, bias=False))

    def forward(self, x, absent):
        e = self.net(x).squeeze(-1).masked_fill(absent, -1e4)
        return torch.bmm(e.softmax(-1).unsqueeze(1), x).squeeze(1)


class UserEncoder(nn.Module):
    def __init__(self, size=32, heads=4):
        super().__init__()
        self.heads = heads
        self.pool = Pool(size, 16)
        self.q = nn.Linear(size, size)
        self.k = nn.Linear(size, size)
        self.v = nn.Linear(size, size)
        self.o = nn.Linear(size, size)
        self.ln = nn.LayerNorm(size)
        self.final = nn.Linear(size, size)

    def split(self, x):
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, h, unread):
        z = F.scaled_dot_product_attention(
            self.split(self.q(h)),
            self.split(self.k(h)),
            self.split(self.v(h)),
            attn_mask=~unread[:, None, None, :],
        )
        h = self.ln(h + self.o(z.transpose(1, 2).flatten(2)))
        return self.final(self.pool(h, unread))


class NewsRec(nn.Module):
    def __init__(self, vocab=120):
        super().__init__()
        self.user = UserEncoder()
        self.word_table = nn.Embedding(vocab, 24)
        self.conv = nn.Conv1d(24, 32, 3, padding="same")
        self.word_pool = Pool(32, 16)

    def titles(self, ids):
        x = F.relu(self.conv(self.word_table(ids).transpose(1, 2)))
        return self.word_pool(x.transpose(1, 2), ids == 0)

    def forward(self, clicked, candidates):
        n, h, t = clicked.shape
        every = torch.cat([clicked, candidates], 1).long()
        v = self.titles(every.reshape(-1, t)).view(n, every.shape[1], -1)
        u = self.user(v[:, :h], (clicked == 0).all(-1))
        return torch.einsum("ncd,nd->nc", v[:, h:], u) / math.sqrt(v.shape[-1])


def build():
    return NewsRec()
