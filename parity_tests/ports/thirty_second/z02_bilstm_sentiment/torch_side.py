import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class SentimentLSTM(nn.Module):
    def __init__(self, vocab=60, emb=12, hidden=10):
        super().__init__()
        self.embed = nn.Embedding(vocab, emb)
        self.lstm = nn.LSTM(emb, hidden, batch_first=True, bidirectional=True)
        # keras has one bias per gate: keep the second one at zero
        for name, p in self.lstm.named_parameters():
            if name.startswith("bias_hh"):
                nn.init.zeros_(p)
                p.requires_grad_(False)
        self.head = nn.Sequential(nn.Linear(2 * hidden, 8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 1))

    def forward(self, tokens):
        tokens = tokens.long()
        lengths = (tokens != 0).sum(1)
        packed = pack_padded_sequence(
            self.embed(tokens), lengths.cpu(), batch_first=True, enforce_sorted=False
        )
        out, _ = self.lstm(packed)
        out, _ = pad_packed_sequence(out, batch_first=True, total_length=tokens.shape[1])
        # output at the last real token of every sentence
        last = out[torch.arange(out.shape[0], device=out.device), lengths.to(out.device) - 1]
        return self.head(last)


def build():
    return SentimentLSTM()


def loss(outputs, targets):
    return F.binary_cross_entropy_with_logits(outputs, targets.to(outputs.dtype))
