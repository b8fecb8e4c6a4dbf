import torch
import torch.nn.functional as F
from torch import nn

GRADES = 5
CARDS = (9, 6, 14)


class OrderedThresholds(nn.Module):
    def __init__(self):
        super().__init__()
        self.raw = nn.Parameter(torch.empty(GRADES - 1).uniform_(-1.6, 0.4))

    def forward(self, score):
        cuts = torch.cumsum(F.softplus(self.raw), dim=0)
        return score - cuts


class OrdinalNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(5)
        dims = [min(6, (card + 1) // 2) for card in CARDS]
        self.embs = nn.ModuleList(nn.Embedding(card, dim, padding_idx=0) for card, dim in zip(CARDS, dims))
        for emb in self.embs:
            nn.init.uniform_(emb.weight, -0.05, 0.05)
        self.fc1 = nn.Linear(5 + sum(dims), 24)
        self.fc2 = nn.Linear(24, 12)
        self.score = nn.Linear(12, 1, bias=False)
        self.cuts = OrderedThresholds()

    def forward(self, num, cat):
        cols = [self.norm(num)] + [emb(c) for emb, c in zip(self.embs, cat.unbind(1))]
        h = F.selu(self.fc1(torch.cat(cols, dim=1)))
        h = F.selu(self.fc2(h))
        return self.cuts(self.score(h))


def ordinal_loss(output, target):
    levels = (target.view(-1, 1) > torch.arange(GRADES - 1)).to(output.dtype)
    bce = F.binary_cross_entropy_with_logits(output, levels, reduction="sum")
    return bce / output.shape[0]


def build():
    return OrdinalNet()
