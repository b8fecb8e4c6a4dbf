import torch
import torch.nn.functional as F
from torch import nn


def conv3(cin, cout):
    return nn.Conv1d(cin, cout, 3, padding=1)


class PreActPair(nn.Sequential):
    def __init__(self, ch):
        super().__init__(nn.ReLU(), conv3(ch, ch), nn.ReLU(), conv3(ch, ch))

    def forward(self, x):
        return x + super().forward(x)


class TitleNet(nn.Module):
    def __init__(self, vocab=400, dim=16, ch=24, depth=3, classes=8, max_len=32):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.pos = nn.Parameter(0.05 * torch.randn(max_len, dim))
        self.region = conv3(dim, ch)
        self.pairs = nn.ModuleList(PreActPair(ch) for _ in range(depth + 1))
        self.fc = nn.Linear(ch, classes)

    def embed(self, titles):
        titles = titles.long()
        return self.emb(titles).masked_fill(titles.eq(0)[..., None], 0.0) + self.pos

    def head(self, e):
        h = self.region(e.transpose(1, 2))
        for i, pair in enumerate(self.pairs):
            if i:
                h = F.max_pool1d(F.pad(h, (0, 1), value=float("-inf")), 3, 2)
            h = pair(h)
        return self.fc(h.amax(-1))

    def forward(self, titles):
        return self.head(self.embed(titles))


def step(model, batch, radius=0.5, weight=0.7):
    titles, department = batch
    y = department.reshape(-1).long()
    e = model.embed(titles)
    clean = F.cross_entropy(model.head(e), y, reduction="none")
    (g,) = torch.autograd.grad(clean.sum(), e, retain_graph=True)
    g = g / (g.flatten(1).norm(dim=1)[:, None, None] + 1e-8)
    adversarial = F.cross_entropy(model.head(e + radius * g), y)
    return clean.mean() + weight * adversarial


def build():
    return TitleNet()
