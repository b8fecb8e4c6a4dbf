"""Enhanced sequential inference model (Chen et al. 2017) for claim checking."""

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class BiLSTM(nn.Module):
    """Bidirectional LSTM on padded batches; a single bias per gate."""

    def __init__(self, dim, hidden):
        super().__init__()
        self.rnn = nn.LSTM(dim, hidden, batch_first=True, bidirectional=True)
        for name, p in self.rnn.named_parameters():
            if name.startswith("bias_hh"):
                nn.init.zeros_(p)
                p.requires_grad_(False)

    def forward(self, x, lengths):
        packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        out, _ = self.rnn(packed)
        return pad_packed_sequence(out, batch_first=True, total_length=x.size(1))[0]


class ESIM(nn.Module):
    def __init__(self, vocab=300, dim=32, hidden=24, classes=3):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.input_encoding = BiLSTM(dim, hidden)
        self.projection = nn.Sequential(nn.Linear(8 * hidden, hidden), nn.ReLU())
        self.inference_composition = BiLSTM(hidden, hidden)
        self.classifier = nn.Sequential(nn.Linear(8 * hidden, hidden), nn.Tanh(), nn.Linear(hidden, classes))

    @staticmethod
    def pool(x, mask):
        mean = x.mul(mask.unsqueeze(-1)).sum(1) / mask.sum(1, keepdim=True)
        peak = x.masked_fill(~mask.unsqueeze(-1), float("-inf")).amax(1)
        return torch.cat([mean, peak], dim=-1)

    def compare(self, x, aligned, mask):
        m = torch.cat([x, aligned, x - aligned, x * aligned], dim=-1)
        y, _ = self.inference_composition.rnn(self.projection(m))
        return self.pool(y, mask)

    def forward(self, evidence, claim):
        mask_e, mask_c = evidence.ne(0), claim.ne(0)
        e = self.input_encoding(self.emb(evidence), mask_e.sum(1))
        c = self.input_encoding(self.emb(claim), mask_c.sum(1))
        similarity = e @ c.transpose(1, 2)
        by_claim = similarity.softmax(dim=-1)
        by_evidence = similarity.softmax(dim=1)
        v = torch.cat(
            [
                self.compare(e, by_claim @ c, mask_e),
                self.compare(c, by_evidence.transpose(1, 2) @ e, mask_c),
            ],
            dim=-1,
        )
        return self.classifier(v)


def build():
    return ESIM()
