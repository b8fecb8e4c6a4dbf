import torch
from torch import nn

VOCAB, CHANNELS, LABELS, PAD = 60, 3, 4, 0


class TicketTagger(nn.Module):
    def __init__(self, emb=16, hidden=12):
        super().__init__()
        self.words = nn.Embedding(VOCAB, emb)
        self.word_drop = nn.Dropout1d(0.2)
        self.context = nn.LSTM(emb, hidden, batch_first=True, bidirectional=True)
        self.channel_emb = nn.Embedding(CHANNELS, 4)
        self.head = nn.Sequential(
            nn.Linear(2 * hidden + 4, 16),
            nn.Tanh(),
            nn.Dropout(0.3),
            nn.Linear(16, LABELS),
        )

    def forward(self, tokens, channel):
        tokens = tokens.long()
        keep = tokens != PAD
        x = self.words(tokens)
        x = self.word_drop(x.transpose(1, 2)).transpose(1, 2)
        x, _ = self.context(x)
        w = keep.unsqueeze(-1).to(x.dtype)
        x = (x * w).sum(1) / w.sum(1)
        return self.head(torch.cat([x, self.channel_emb(channel.long())], dim=-1))


def build():
    return TicketTagger()
