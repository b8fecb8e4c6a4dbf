import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class BiLSTMTagger(nn.Module):
    def __init__(self, vocab_size=60, n_tags=5, emb=12, hidden=10, dropout=0.2):
        super().__init__()
        self.word_embeddings = nn.Embedding(vocab_size, emb)
        self.lstm = nn.LSTM(emb, hidden, batch_first=True, bidirectional=True)
        # Keras' LSTM has one bias vector: keep torch's second one at zero
        for name, p in self.lstm.named_parameters():
            if name.startswith("bias_hh"):
                nn.init.zeros_(p)
                p.requires_grad_(False)
        self.drop = nn.Dropout(dropout)
        self.fc = nn.Linear(2 * hidden, 16)
        self.hidden2tag = nn.Linear(16, n_tags)

    def forward(self, tokens):
        tokens = tokens.long()
        lengths = (tokens != 0).sum(1)
        packed = pack_padded_sequence(
            self.word_embeddings(tokens), lengths.cpu(), batch_first=True, enforce_sorted=False
        )
        out, _ = self.lstm(packed)
        out, _ = pad_packed_sequence(out, batch_first=True, total_length=tokens.shape[1])
        return self.hidden2tag(torch.tanh(self.fc(self.drop(out))))


def build():
    return BiLSTMTagger()


def loss(outputs, targets):
    return F.cross_entropy(
        outputs.reshape(-1, outputs.shape[-1]), targets.reshape(-1).long(), ignore_index=-100
    )
