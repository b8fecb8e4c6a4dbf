"""A neural Turing machine in PyTorch."""

import torch
from torch import nn
from torch.nn import functional as F

SLOTS, WIDTH = 8, 6


class Head(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.sizes = [WIDTH, 1, 1, 3, 1]
        self.project = nn.Linear(hidden, sum(self.sizes))

    def forward(self, h, memory, previous):
        key, strength, gate, shift, sharpen = self.project(h).split(self.sizes, dim=-1)
        key = key.tanh()
        dot = (memory @ key.unsqueeze(-1)).squeeze(-1)
        norms = (key.square().sum(-1, keepdim=True) * memory.square().sum(-1) + 1e-6).sqrt()
        content = (F.softplus(strength) * dot / norms).softmax(-1)
        mixed = torch.lerp(previous, content, gate.sigmoid())
        back, stay, forth = shift.softmax(-1).split(1, dim=-1)
        moved = back * mixed.roll(-1, 1) + stay * mixed + forth * mixed.roll(1, 1)
        powered = (moved + 1e-8) ** (1 + F.softplus(sharpen))
        return powered / powered.sum(-1, keepdim=True)


class Net(nn.Module):
    def __init__(self, inputs=5, outputs=4, hidden=32):
        super().__init__()
        self.controller = nn.Linear(inputs + WIDTH, hidden)
        self.write_head = Head(hidden)
        self.read_head = Head(hidden)
        self.erase = nn.Linear(hidden, WIDTH)
        self.add = nn.Linear(hidden, WIDTH)
        self.out = nn.Linear(hidden + WIDTH, outputs)
        self.register_buffer("memory", torch.empty(SLOTS, WIDTH).uniform_(-0.5, 0.5))

    def forward(self, x):
        memory = self.memory.expand(len(x), -1, -1)
        write = x.new_full((len(x), SLOTS), 1 / SLOTS)
        read = write
        vector = x.new_zeros(len(x), WIDTH)
        outputs = []
        for frame in x.unbind(1):
            h = self.controller(torch.cat([frame, vector], -1)).tanh()
            write = self.write_head(h, memory, write)
            read = self.read_head(h, memory, read)
            vector = torch.einsum("bn,bnm->bm", read, memory)
            erase, add = self.erase(h).sigmoid(), self.add(h).tanh()
            memory = memory * (1 - write.unsqueeze(-1) * erase.unsqueeze(1))
            memory = memory + write.unsqueeze(-1) * add.unsqueeze(1)
            outputs.append(self.out(torch.cat([h, vector], -1)))
        return torch.stack(outputs, dim=1)
