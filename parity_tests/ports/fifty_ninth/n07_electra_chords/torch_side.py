import torch
from torch import nn
from torch.nn import functional as F

PAD, MASK = 0, 1


def encoder(width, heads, inner, depth):
    layer = nn.TransformerEncoderLayer(
        width,
        heads,
        inner,
        dropout=0.0,
        activation=F.relu,
        layer_norm_eps=1e-6,
        batch_first=True,
        norm_first=False,
    )
    return nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)


class ReplacedChords(nn.Module):
    def __init__(self, vocab=28, length=16, e=12, g=8, d=20):
        super().__init__()
        self.finder = nn.ModuleDict(
            {
                "verdict": nn.Sequential(nn.Linear(d, d), nn.ReLU(), nn.Linear(d, 1), nn.Flatten(1)),
                "body": encoder(d, 5, 32, 3),
                "lift": nn.Linear(e, d),
            }
        )
        self.filler = nn.ModuleDict(
            {
                "back": nn.Sequential(nn.Linear(g, e), nn.ReLU(), nn.LayerNorm(e, eps=1e-6)),
                "body": encoder(g, 2, 16, 2),
                "lift": nn.Linear(e, g),
            }
        )
        self.bias = nn.Parameter(torch.zeros(vocab))
        self.norm = nn.LayerNorm(e, eps=1e-6)
        self.at = nn.Parameter(torch.randn(length, e) * 0.02)
        self.chords = nn.Parameter(torch.randn(vocab, e) * 0.02)

    def run(self, part, ids, padding):
        x = part["lift"](self.norm(F.embedding(ids, self.chords) + self.at))
        return part["body"](x, src_key_padding_mask=padding)

    def fill(self, ids, gumbel):
        h = self.filler["back"](self.run(self.filler, ids, ids == PAD))
        scores = F.linear(h, self.chords.detach(), self.bias)
        with torch.no_grad():
            guess = (scores + gumbel).argmax(-1)
        return scores, torch.where(ids == MASK, guess, ids)

    def find(self, filled, padding):
        return self.finder["verdict"](self.run(self.finder, filled, padding))

    def forward(self, tokens, gumbel):
        ids = tokens.long()
        return self.find(self.fill(ids, gumbel)[1], ids == PAD)


def row_mean(values, where):
    return values.masked_fill(~where, 0).sum(-1) / where.sum(-1).clamp(min=1)


def step(model, batch):
    x, original = batch
    ids, original = x["tokens"].long(), original.long()
    hidden, padding = ids == MASK, ids == PAD
    scores, filled = model.fill(ids, x["gumbel"])
    verdict = model.find(filled, padding)
    nll = F.cross_entropy(scores.flatten(0, 1), original.flatten(), reduction="none").view_as(verdict)
    bce = F.binary_cross_entropy_with_logits(verdict, hidden.to(verdict.dtype), reduction="none")
    return (row_mean(nll, hidden) + 20.0 * row_mean(bce, ~padding)).mean()


def build():
    return ReplacedChords()
