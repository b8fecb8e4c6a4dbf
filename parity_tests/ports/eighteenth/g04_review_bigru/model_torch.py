import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence


class ReviewNet(nn.Module):
    """tokens: (batch, length), 0 is padding and stands at the end"""

    def __init__(self, vocab=60, emb=12, first=10, second=8, hidden=16, p=0.3):
        super().__init__()
        self.embedding = nn.Embedding(vocab, emb, padding_idx=0)
        self.gru1 = nn.GRU(emb, first, batch_first=True, bidirectional=True)
        self.gru2 = nn.GRU(2 * first, second, batch_first=True, bidirectional=True)
        self.hidden = nn.Linear(2 * second, hidden)
        self.dropout = nn.Dropout(p)
        self.out = nn.Linear(hidden, 1)

    def forward(self, tokens):
        tokens = tokens.long()
        lengths = tokens.ne(0).sum(dim=1).cpu()
        packed = pack_padded_sequence(self.embedding(tokens), lengths, batch_first=True, enforce_sorted=False)
        packed, _ = self.gru1(packed)
        _, h_n = self.gru2(packed)
        x = torch.cat((h_n[0], h_n[1]), dim=1)
        x = self.dropout(torch.tanh(self.hidden(x)))
        return self.out(x).squeeze(1)


def build():
    return ReviewNet()
