"""Biaffine dependency parser."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class Parser(nn.Module):
    def __init__(self, words=40, tags=7, units=9, arc=10, label=6, labels=4):
        super().__init__()
        self.word = nn.Embedding(words, 10)
        self.tag = nn.Embedding(tags, 4)
        self.rnn = nn.GRU(14, units, batch_first=True, bidirectional=True)
        # arc dependents, arc heads, label dependents, label heads
        self.sizes = [arc, arc, label, label]
        self.project = nn.Linear(2 * units, sum(self.sizes))
        self.arc_u = nn.Parameter(torch.empty(arc, arc))
        self.arc_v = nn.Parameter(torch.zeros(arc))
        self.label_u = nn.Bilinear(label, label, labels)
        self.label_dep = nn.Linear(label, labels, bias=False)
        self.label_head = nn.Linear(label, labels, bias=False)
        nn.init.xavier_uniform_(self.arc_u)

    def forward(self, words, tags):
        words, tags = words.long(), tags.long()
        valid = words != 0
        n, steps = words.shape
        x = torch.cat([self.word(words), self.tag(tags)], dim=-1)
        packed = pack_padded_sequence(x, valid.sum(1).cpu(), batch_first=True, enforce_sorted=False)
        x, _ = pad_packed_sequence(self.rnn(packed)[0], batch_first=True, total_length=steps)
        dep, head, ldep, lhead = F.elu(self.project(x)).split(self.sizes, dim=-1)
        arcs = (dep @ self.arc_u + self.arc_v) @ head.mT
        pairs = (n, steps, steps, ldep.shape[-1])
        rels = self.label_u(
            ldep[:, :, None].expand(pairs).contiguous(), lhead[:, None].expand(pairs).contiguous()
        )
        rels = rels + self.label_dep(ldep)[:, :, None] + self.label_head(lhead)[:, None]
        away = 1000.0 * (~valid)[:, None, :]
        arcs = (arcs - away).masked_fill(~valid[:, :, None], 0.0)
        rels = (rels - away[..., None]).masked_fill(~valid[:, :, None, None], 0.0)
        return {"arc": arcs, "label": rels}


def per_sentence(logits, target):
    """Mean over the words of each sentence, then over sentences; -1 is no word."""
    value = F.cross_entropy(logits.transpose(1, 2), target, ignore_index=-1, reduction="none")
    return (value.sum(1) / (target >= 0).sum(1)).mean()


def arc_loss(output, target):
    return per_sentence(output, target.long())


def label_loss(output, target):
    heads, labels = target.long().unbind(-1)
    index = heads.clamp(min=0)[:, :, None, None].expand(-1, -1, 1, output.shape[-1])
    return per_sentence(output.gather(2, index).squeeze(2), labels)
