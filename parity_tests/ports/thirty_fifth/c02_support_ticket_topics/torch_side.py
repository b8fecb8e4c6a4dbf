"""TextCNN for ticket topics."""

import torch
import torch.nn.functional as F
from torch import nn

PAD = 0


class TicketCNN(nn.Module):
    def __init__(self, vocab=60, dim=16, filters=12, topics=5):
        super().__init__()
        self.words = nn.Embedding(vocab, dim, padding_idx=PAD)
        self.convs = nn.ModuleList(nn.Conv1d(dim, filters, k) for k in (2, 3, 4))
        self.drop = nn.Dropout(0.3)
        self.classifier = nn.Sequential(nn.Linear(3 * filters + dim, 20), nn.ELU(), nn.Linear(20, topics))

    def forward(self, tokens):
        e = self.words(tokens.long()).transpose(1, 2)
        feats = [F.relu(conv(e)).amax(-1) for conv in self.convs]
        feats.append(e.mean(-1))
        return self.classifier(self.drop(torch.cat(feats, 1)))


def build():
    return TicketCNN()
