import torch
import torch.nn.functional as F
from torch import nn


class Shift(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.mix = nn.Parameter(torch.rand(dim))

    def forward(self, x):
        return torch.lerp(F.pad(x, (0, 0, 1, 0))[:, :-1], x, self.mix)


class TimeMix(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.mix_k, self.mix_v, self.mix_r = Shift(dim), Shift(dim), Shift(dim)
        self.decay = nn.Parameter(0.1 * torch.randn(dim))
        self.bonus = nn.Parameter(0.1 * torch.randn(dim))
        self.key = nn.Linear(dim, dim, bias=False)
        self.value = nn.Linear(dim, dim, bias=False)
        self.receptance = nn.Linear(dim, dim, bias=False)
        self.output = nn.Linear(dim, dim, bias=False)

    def forward(self, x):
        steps = torch.arange(x.shape[1], device=x.device)
        lag = (steps[:, None] - steps[None, :] - 1)[..., None]
        k, v = self.key(self.mix_k(x)), self.value(self.mix_v(x))
        logits = torch.where(lag < 0, self.bonus, -self.decay.exp() * lag)
        logits = (logits + k[:, None]).masked_fill(lag < -1, float("-inf"))
        wkv = torch.einsum("btsc,bsc->btc", logits.softmax(2), v)
        return self.output(self.receptance(self.mix_r(x)).sigmoid() * wkv)


class ChannelMix(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.mix_k, self.mix_r = Shift(dim), Shift(dim)
        self.key = nn.Linear(dim, hidden, bias=False)
        self.receptance = nn.Linear(dim, dim, bias=False)
        self.value = nn.Linear(hidden, dim, bias=False)

    def forward(self, x):
        k = F.relu(self.key(self.mix_k(x))) ** 2
        return torch.sigmoid(self.receptance(self.mix_r(x))) * self.value(k)


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.time = TimeMix(dim)
        self.channel = ChannelMix(dim, 2 * dim)

    def forward(self, x):
        x = x + self.time(self.ln1(x))
        return x + self.channel(self.ln2(x))


class Net(nn.Module):
    def __init__(self, vocabulary=19, dim=14, depth=2):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, dim)
        self.blocks = nn.Sequential(*[Block(dim) for _ in range(depth)])
        self.ln_out = nn.LayerNorm(dim)

    def forward(self, tokens):
        return F.linear(self.ln_out(self.blocks(self.embed(tokens))), self.embed.weight)
