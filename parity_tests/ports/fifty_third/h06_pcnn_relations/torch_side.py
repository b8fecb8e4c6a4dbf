import torch
from torch import nn


class RelationPCNN(nn.Module):
    def __init__(self, vocab=220, word_dim=20, pos_dim=4, filters=24, limit=12, relations=6):
        super().__init__()
        self.limit = limit
        self.word_emb = nn.Embedding(vocab, word_dim)
        self.pos1_emb = nn.Embedding(2 * limit + 1, pos_dim)
        self.pos2_emb = nn.Embedding(2 * limit + 1, pos_dim)
        self.cnn = nn.Conv1d(word_dim + 2 * pos_dim, filters, kernel_size=3, padding=1)
        self.fc = nn.Linear(3 * filters, relations)

    def embed(self, tokens, rel1, rel2):
        lim = self.limit
        return torch.cat(
            [
                self.word_emb(tokens),
                self.pos1_emb(rel1.clamp(-lim, lim) + lim),
                self.pos2_emb(rel2.clamp(-lim, lim) + lim),
            ],
            dim=-1,
        )

    @staticmethod
    def segment_ids(rel1, rel2, present):
        """0 up to the first entity, 1 up to the second, 2 behind it, -1 for padding."""
        seg = (rel1 > 0).long() + ((rel1 > 0) & (rel2 > 0)).long()
        return seg.masked_fill(~present & (seg == 2), -1)

    def forward(self, tokens, head, tail):
        tokens = tokens.long()
        present = tokens != 0
        where = torch.arange(tokens.shape[1], device=tokens.device)
        rel1 = where - head.long()[:, None]
        rel2 = where - tail.long()[:, None]

        x = self.embed(tokens, rel1, rel2) * present[..., None]
        maps = self.cnn(x.transpose(1, 2))  # (B, F, T)

        seg = self.segment_ids(rel1, rel2, present)
        parts = []
        for k in range(3):
            inside = (seg == k)[:, None]
            best = maps.masked_fill(~inside, float("-inf")).amax(-1)
            parts.append(best.masked_fill(~inside.any(-1), 0.0))
        return self.fc(torch.cat(parts, dim=1).tanh())


def build():
    return RelationPCNN()
