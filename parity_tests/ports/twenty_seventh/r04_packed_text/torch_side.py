import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class Reader(nn.Module):
    def __init__(self, vocab=30, dim=9, units=7):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.gru = nn.GRU(dim, units, num_layers=2, bidirectional=True, batch_first=True)
        self.attn = nn.Sequential(nn.Linear(2 * units, 6), nn.Tanh(), nn.Linear(6, 1, bias=False))
        self.out = nn.Linear(4 * units, 1)

    def forward(self, x):
        x = x.long()
        valid = x != 0
        lengths = valid.sum(1).cpu()
        packed = pack_padded_sequence(self.emb(x), lengths, batch_first=True, enforce_sorted=False)
        h, last = self.gru(packed)
        h, _ = pad_packed_sequence(h, batch_first=True, total_length=x.shape[1])
        s = self.attn(h).squeeze(-1).masked_fill(~valid, float("-inf"))
        pooled = torch.bmm(s.softmax(1).unsqueeze(1), h).squeeze(1)
        return self.out(torch.cat([pooled, last[-2], last[-1]], dim=1))


def build():
    return Reader()
