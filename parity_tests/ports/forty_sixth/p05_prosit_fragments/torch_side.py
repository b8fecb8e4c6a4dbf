import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class MaskedAttentionPool(nn.Module):
    def __init__(self, dim, length):
        super().__init__()
        self.position_bias = nn.Parameter(torch.zeros(length))
        self.score = nn.Linear(dim, 1, bias=False)

    def forward(self, x, mask):
        e = torch.tanh(self.score(x).squeeze(-1) + self.position_bias).exp() * mask
        return torch.bmm((e / (e.sum(1, keepdim=True) + 1e-7)).unsqueeze(1), x).squeeze(1)


class TemporalGate(nn.Module):
    """For each channel a softmax over time."""

    def __init__(self, steps):
        super().__init__()
        self.dense = nn.Linear(steps, steps)

    def forward(self, x):
        return x * self.dense(x.mT).softmax(-1).mT


class Prosit(nn.Module):
    def __init__(self, n_residues=22, max_len=16, n_charges=4, n_ions=6, emb=24, latent=48):
        super().__init__()
        self.steps = max_len - 1
        self.regressor = nn.Linear(latent, n_ions)
        self.decoder = nn.GRU(latent, latent, batch_first=True)
        self.gate = TemporalGate(self.steps)
        self.meta = nn.Linear(n_charges + 1, latent)
        self.embedding = nn.Embedding(n_residues, emb)
        self.birnn = nn.GRU(emb, latent // 2, batch_first=True, bidirectional=True)
        self.rnn = nn.GRU(latent, latent, batch_first=True)
        self.pool = MaskedAttentionPool(latent, max_len)

    def encode(self, peptide):
        mask = peptide != 0
        packed = pack_padded_sequence(
            self.embedding(peptide), mask.sum(1).cpu(), batch_first=True, enforce_sorted=False
        )
        x, _ = pad_packed_sequence(self.birnn(packed)[0], batch_first=True, total_length=peptide.size(1))
        return self.pool(self.rnn(x)[0], mask)

    def forward(self, peptide, charge, energy):
        z = self.encode(peptide.long()) * self.meta(torch.cat((charge, energy), 1))
        x, _ = self.decoder(z.unsqueeze(1).expand(-1, self.steps, -1))
        return F.leaky_relu(self.regressor(self.gate(x)), 0.25).flatten(1)


def masked_spectral_angle(outputs, targets):
    possible = targets >= 0
    a = F.normalize(targets.to(outputs.dtype) * possible, dim=1)
    b = F.normalize(outputs * possible, dim=1)
    cosine = F.cosine_similarity(a, b, dim=1).clamp(-0.9999, 0.9999)
    return (cosine.acos() * (2 / math.pi)).mean()


def build():
    return Prosit()
