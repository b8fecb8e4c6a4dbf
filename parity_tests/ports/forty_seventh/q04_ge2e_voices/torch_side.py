"""Speaker encoder trained with GE2E (Wan et al. 2018) and a dialect head."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence


class SpeakerEncoder(nn.Module):
    def __init__(self, n_mels=20, hidden=32, dim=24, dialects=5):
        super().__init__()
        self.gru = nn.GRU(n_mels, hidden, num_layers=2, batch_first=True)
        self.linear = nn.Linear(hidden, dim)
        self.dialect_head = nn.Linear(dim, dialects)
        self.similarity_weight = nn.Parameter(torch.tensor(10.0))
        self.similarity_bias = nn.Parameter(torch.tensor(-5.0))
        for p in (self.similarity_weight, self.similarity_bias):
            p.register_hook(lambda grad: 0.01 * grad)

    def forward(self, mels, frames):
        speakers, utterances = mels.shape[:2]
        packed = pack_padded_sequence(
            mels.flatten(0, 1), frames.flatten().cpu(), batch_first=True, enforce_sorted=False
        )
        _, hidden = self.gru(packed)
        e = F.relu(self.linear(hidden[-1])).view(speakers, utterances, -1)
        e = F.normalize(e + 1e-5, dim=-1)
        return {"embedding": e, "dialect": self.dialect_head(e.mean(1))}

    def similarity_matrix(self, e):
        """(speakers * utterances, speakers)"""
        speakers, utterances, _ = e.shape
        inclusive = F.normalize(e.mean(1), dim=-1)
        exclusive = F.normalize((e.sum(1, keepdim=True) - e) / (utterances - 1))
        sim = e.flatten(0, 1) @ inclusive.T
        own = (e * exclusive).sum(-1).flatten()
        is_own = torch.eye(speakers, dtype=torch.bool, device=e.device).repeat(utterances, 1)
        sim = torch.where(is_own, own.unsqueeze(1), sim)
        return sim * self.similarity_weight + self.similarity_bias


def build():
    return SpeakerEncoder()


def step(model, batch):
    inputs, dialect = batch
    out = model(**inputs) if isinstance(inputs, dict) else model(*inputs)
    scores = model.similarity_matrix(out["embedding"])
    speakers, utterances = out["embedding"].shape[:2]
    target = torch.arange(speakers, device=scores.device).repeat_interleave(utterances)
    return F.cross_entropy(scores, target) + 0.2 * F.cross_entropy(out["dialect"], dialect.long())
