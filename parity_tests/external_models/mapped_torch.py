"""Counterparts of `mapped_keras`, as somebody else would write and name them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


class Convolutions(nn.Module):
    """Channels first; the layers are called conv0, conv1, ... in their order."""

    def __init__(self):
        super().__init__()
        self.conv0 = nn.Conv2d(4, 8, 3, padding=1, bias=False)
        self.norm0 = nn.BatchNorm2d(8, eps=1e-3)
        self.relu = nn.ReLU()
        self.conv1 = nn.Conv2d(8, 8, 3, padding=1, groups=2)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1, groups=8)
        self.norm2 = nn.BatchNorm2d(16, eps=1e-3)
        self.conv3 = nn.Conv2d(16, 16, 3, padding=1, groups=16, bias=False)
        self.conv4 = nn.Conv2d(16, 8, 1)
        self.conv5 = nn.ConvTranspose2d(8, 8, 3)
        self.conv6 = nn.Conv2d(8, 8, 3, stride=3)
        self.conv7 = nn.Conv2d(8, 8, 1)
        self.fc0 = nn.Linear(72, 72)
        self.fc1 = nn.Linear(72, 72)
        self.fc2 = nn.Linear(72, 5)

    def forward(self, x):
        x = self.relu(self.norm0(self.conv0(x)))
        x = self.norm2(self.conv2(self.conv1(x)))
        x = F.relu(self.conv4(self.conv3(x)))
        x = self.conv7(self.conv6(self.conv5(x))).flatten(1)
        return self.fc2(self.fc1(torch.tanh(self.fc0(x))))


class Block(nn.Module):
    def __init__(self, attention):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(16), nn.LayerNorm(16)
        self.attn = attention
        self.mlp = nn.ModuleDict({"down": nn.Linear(16, 16), "up": nn.Linear(16, 16)})

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp["down"](F.relu(self.mlp["up"](self.ln_2(x))))


class Own(nn.MultiheadAttention):
    def forward(self, x):
        return super().forward(x, x, x, need_weights=False)[0]


class Split(nn.Module):
    def __init__(self):
        super().__init__()
        # Not in the order in which they are called.
        self.v, self.o, self.k, self.q = (nn.Linear(16, 16) for _ in range(4))

    def forward(self, x):
        q, k, v = (f(x).unflatten(-1, (4, 4)).transpose(1, 2) for f in (self.q, self.k, self.v))
        return self.o(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Conv1D(nn.Module):
    """As GPT-2 has it: (in, out)."""

    def __init__(self, given, wanted):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(given, wanted) * 0.1)
        self.bias = nn.Parameter(torch.zeros(wanted))

    def forward(self, x):
        return x @ self.weight + self.bias


class Fused(nn.Module):
    def __init__(self, interleaved):
        super().__init__()
        self.interleaved = interleaved
        self.c_attn = nn.Linear(16, 48) if interleaved else Conv1D(16, 48)
        self.c_proj = nn.Linear(16, 16) if interleaved else Conv1D(16, 16)

    def forward(self, x):
        y = self.c_attn(x)
        if self.interleaved:
            q, k, v = y.unflatten(-1, (4, 3, 4)).permute(3, 0, 2, 1, 4)
        else:
            q, k, v = y.unflatten(-1, (3, 4, 4)).permute(2, 0, 3, 1, 4)
        return self.c_proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Attention(nn.Module):
    """kind: 'own', 'split', 'fused' or 'interleaved'."""

    def __init__(self, kind="own"):
        super().__init__()
        make = {
            "own": lambda: Own(16, 4, batch_first=True),
            "split": Split,
            "fused": lambda: Fused(False),
            "interleaved": lambda: Fused(True),
        }[kind]
        self.h = nn.ModuleList(Block(make()) for _ in range(2))
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        for block in self.h:
            x = block(x)
        return self.head(x)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.LSTM(6, 6, bidirectional=True, batch_first=True)
        self.b = nn.LSTM(12, 6, num_layers=2, batch_first=True)
        self.c = nn.GRU(6, 6, batch_first=True)
        self.d = nn.RNN(6, 6, batch_first=True)
        self.e = nn.Linear(6, 6)

    def forward(self, x):
        for layer in (self.a, self.b, self.c, self.d):
            x = layer(x)[0]
        return self.e(x)


class Sequences(nn.Module):
    """Takes and gives (batch, steps, channels)."""

    def __init__(self):
        super().__init__()
        self.a = nn.Conv1d(6, 6, 3, padding=1)
        self.b = nn.Conv1d(6, 6, 3, padding=1, groups=6)
        self.c = nn.Conv1d(6, 6, 3, padding=1, groups=6, bias=False)
        self.d = nn.Conv1d(6, 6, 1)
        self.e = nn.ConvTranspose1d(6, 6, 3)
        self.f = nn.GroupNorm(2, 6)
        self.g = nn.Conv3d(6, 6, (3, 1, 1), padding=(1, 0, 0))
        self.h = nn.PReLU(6)
        self.i = nn.Linear(6, 6)

    def forward(self, x):
        x = self.f(self.e(self.d(self.c(self.b(self.a(x.transpose(1, 2)))))))
        x = self.h(self.g(x[:, :, :, None, None]))
        return self.i(x.flatten(2).transpose(1, 2))


class Inception(nn.Module):
    def __init__(self):
        super().__init__()
        self.x = nn.ModuleList(nn.Conv2d(8, 8, 3, padding=1) for _ in range(6))
        self.y = nn.Conv2d(24, 8, 1)

    def forward(self, x):
        third = self.x[3](F.relu(self.x[5](F.relu(self.x[0](x)))))
        second = self.x[1](F.relu(self.x[4](x)))
        return F.relu(self.y(torch.cat([self.x[2](x), second, third], 1)))


class Branches(nn.Module):
    """The same branches, called in another order."""

    def __init__(self):
        super().__init__()
        self.m = nn.ModuleList([Inception(), Inception()])
        self.z = nn.Linear(8, 3)

    def forward(self, x):
        for block in self.m:
            x = block(x)
        return self.z(x.mean((2, 3)))


class NormRelu(nn.BatchNorm2d):
    """A norm that applies its activation itself."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels, eps=1e-3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(super().forward(x))


class Unnamed(nn.Module):
    """Blocks of branches, as they were made."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList()
        for before in (8, 12):
            branches = []
            for depth in (1, 2, 3):
                parts: list[nn.Module] = []
                for number in range(depth):
                    conv = nn.Conv2d(4 if number else before, 4, 3, padding=1, bias=False)
                    parts += [conv, NormRelu(4)]
                branches.append(nn.Sequential(*parts))
            self.blocks.append(nn.ModuleList(branches))
        self.top = nn.Linear(12, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for branches in self.blocks:
            x = torch.cat([branch(x) for branch in branches], 1)
        return self.top(x.mean((2, 3)))


class CustomLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.mixing = nn.Parameter(torch.randn(8, 8))
        self.qkv = nn.Linear(8, 24, bias=False)
        self.gamma_1 = nn.Parameter(torch.ones(8))
        self.pos_embed = nn.Parameter(torch.randn(1, 7, 8))
        self.cls_token = nn.Parameter(torch.randn(1, 1, 8))

    def forward(self, x):
        x = torch.cat([self.cls_token.expand(len(x), 1, 8), x], 1) + self.pos_embed
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = (q @ k.transpose(1, 2) * 0.25).softmax(-1)
        return x + self.gamma_1 * (scores @ v @ self.mixing.T)


class Custom(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(11, 8)
        self.body = CustomLayer()
        self.out = nn.Linear(8, 11)

    def forward(self, tokens):
        return self.out(self.body(self.emb(tokens)))


class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.up_proj, self.gate_proj = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x):
        return F.silu(self.gate_proj(x)) * self.up_proj(x)


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.v_proj, self.k_proj, self.q_proj = (nn.Linear(16, 16, bias=False) for _ in range(3))
        self.experts = nn.ModuleList(Expert() for _ in range(3))
        self.top = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3))

    def forward(self, x):
        value, key, query = self.v_proj(x), self.k_proj(x), self.q_proj(x)
        y = (query @ key.transpose(1, 2)).softmax(-1) @ value
        for number, each in enumerate(self.experts):
            y = y + (number + 1) * each(y)
        return self.top(y)


class Projections(nn.Module):
    """One convolution of one place makes query, key and value."""

    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Conv1d(16, 24, 1), nn.Linear(8, 3)

    def forward(self, x):
        query, key, value = self.qkv(x.transpose(1, 2)).transpose(1, 2).chunk(3, -1)
        return self.out((query @ key.transpose(1, 2)).softmax(-1) @ value)
