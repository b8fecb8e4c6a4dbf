import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class RCNN(nn.Module):
    def __init__(self, vocab_size=300, dim=24, hidden=16, latent=32, groups=9, n_classes=6, k=3):
        super().__init__()
        self.vocab_size, self.k = vocab_size, k
        self.group_embedding = nn.Embedding(groups, 4)
        self.word_embedding = nn.Embedding(vocab_size, dim)
        self.rnn = nn.GRU(dim, hidden, batch_first=True, bidirectional=True)
        self.project = nn.Linear(2 * hidden + dim, latent)
        self.mlp = nn.Sequential(nn.Linear(latent + 4, 24), nn.ReLU(), nn.Linear(24, n_classes))

    def contexts(self, emb, lengths):
        packed = pack_padded_sequence(emb, lengths.cpu(), batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.rnn(packed)[0], batch_first=True, total_length=emb.size(1))
        before, after = states.chunk(2, dim=-1)
        return F.pad(before, (0, 0, 1, -1)), F.pad(after, (0, 0, -1, 1))

    def pool(self, h, mask):
        h = h.masked_fill(~mask.unsqueeze(-1), float("-inf"))
        top = h.topk(self.k, dim=1).values
        top = top.masked_fill(torch.isinf(top), 0.0)
        return top.mean(1)

    def forward(self, tokens, sender):
        tokens = tokens.long().clamp(max=self.vocab_size - 1)
        mask = tokens.ne(0)
        emb = self.word_embedding(tokens)
        before, after = self.contexts(emb, mask.sum(1))
        h = torch.tanh(self.project(torch.cat([before, emb, after], dim=-1)))
        doc = self.pool(h, mask)
        group = self.group_embedding(sender.long().squeeze(1))
        return self.mlp(torch.cat([doc, group], dim=1))


def build():
    return RCNN()
