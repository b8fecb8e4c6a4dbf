"""DINO for plankton pictures."""

import copy

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.ln_attention = nn.LayerNorm(dim, eps=1e-6)
        self.attention = Attention(dim, heads)
        self.ln_mlp = nn.LayerNorm(dim, eps=1e-6)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.SiLU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        x = x + self.attention(self.ln_attention(x))
        return x + self.mlp(self.ln_mlp(x))


class TinyViT(nn.Module):
    def __init__(self, dim=32, heads=4, depth=2, patch=4, grid=6):
        super().__init__()
        self.cls = nn.Parameter(torch.randn(1, 1, dim) * 0.02)
        self.cls_pos = nn.Parameter(torch.randn(1, 1, dim) * 0.02)
        self.pos = nn.Parameter(torch.randn(1, grid, grid, dim) * 0.02)
        self.embed = nn.Conv2d(1, dim, patch, patch)
        self.layers = nn.Sequential(*[Layer(dim, heads) for _ in range(depth)])
        self.ln = nn.LayerNorm(dim, eps=1e-6)

    def forward(self, x):
        if x.shape[1] != 1:
            x = x.movedim(-1, 1)
        x = self.embed(x)
        pos = self.pos.movedim(-1, 1)
        if pos.shape[-2:] != x.shape[-2:]:
            pos = F.interpolate(pos, size=x.shape[-2:], mode="area")
        x = (x + pos).flatten(2).mT
        x = torch.cat([(self.cls + self.cls_pos).expand(len(x), -1, -1), x], dim=1)
        return self.ln(self.layers(x))[:, 0]


class Head(nn.Module):
    def __init__(self, dim=32, hidden=64, bottleneck=16, prototypes=48):
        super().__init__()
        self.mlp = nn.Sequential(
            nn.Linear(dim, hidden),
            nn.SiLU(),
            nn.Linear(hidden, hidden),
            nn.SiLU(),
            nn.Linear(hidden, bottleneck),
        )
        self.last = nn.Linear(bottleneck, prototypes, bias=False)

    def forward(self, x):
        return F.linear(F.normalize(self.mlp(x), dim=-1), F.normalize(self.last.weight, dim=-1))


class DINO(nn.Module):
    def __init__(self, classes=5, dim=32, prototypes=48, momentum=0.98, centre_momentum=0.9):
        super().__init__()
        self.momentum, self.centre_momentum = momentum, centre_momentum
        self.student = nn.Sequential(TinyViT(dim), Head(dim, prototypes=prototypes))
        self.teacher = copy.deepcopy(self.student).requires_grad_(False)
        self.probe = nn.Linear(dim, classes)
        self.register_buffer("centre", torch.zeros(prototypes))

    def forward(self, global1, global2=None, local1=None, local2=None):
        with torch.no_grad():
            features = self.student[0](global1)
        return self.probe(features)

    @torch.no_grad()
    def advance_teacher(self):
        for slow, fast in zip(self.teacher.parameters(), self.student.parameters()):
            slow.lerp_(fast, 1 - self.momentum)

    @torch.no_grad()
    def assign(self, crops, temperature=0.05):
        """Soft prototypes of the global crops by the teacher."""
        logits = self.teacher(crops)
        self.centre.lerp_(logits.mean(0), 1 - self.centre_momentum)
        return F.softmax((logits - self.centre) / temperature, dim=-1)


def build():
    return DINO()


def step(model, batch, temperature=0.1):
    inputs, labels = batch
    g1, g2, l1, l2 = (
        [inputs[k] for k in ("global1", "global2", "local1", "local2")]
        if isinstance(inputs, dict)
        else inputs
    )
    model.advance_teacher()
    globals_ = torch.stack([g1, g2], dim=1).flatten(0, 1)
    locals_ = torch.stack([l1, l2], dim=1).flatten(0, 1)
    targets = model.assign(globals_).chunk(2)
    students = model.student(globals_).chunk(2) + model.student(locals_).chunk(2)

    total, terms = 0.0, 0
    for i, target in enumerate(targets):
        for j, logits in enumerate(students):
            if i == j:
                continue
            total = total + F.cross_entropy(logits / temperature, target)
            terms += 1
    return total / terms + F.cross_entropy(model(g1), labels.long().view(-1))
