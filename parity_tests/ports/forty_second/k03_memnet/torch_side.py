import torch
import torch.nn as nn


def encoding(J, d):
    pe = torch.empty(J, d)
    for j in range(1, J + 1):
        for k in range(1, d + 1):
            pe[j - 1, k - 1] = (1 - j / J) - (k / d) * (1 - 2 * j / J)
    return pe


class MemN2N(nn.Module):
    def __init__(self, vocab=28, n_sent=8, n_word=7, d=20, hops=3):
        super().__init__()
        self.hops = hops
        self.out = nn.Linear(d, vocab, bias=False)
        self.emb = nn.ModuleList(nn.Embedding(vocab, d) for _ in range(hops + 1))
        self.temporal = nn.ParameterList(nn.Parameter(torch.randn(n_sent, d) * 0.1) for _ in range(hops + 1))
        self.register_buffer("pe", encoding(n_word, d), persistent=False)
        for e in self.emb:
            nn.init.normal_(e.weight, std=0.3)

    def encode(self, ids, table):
        vec = table(ids).masked_fill((ids == 0).unsqueeze(-1), 0.0)
        return torch.einsum("...jd,jd->...d", vec, self.pe[: ids.size(-1)])

    def forward(self, story, question):
        story, question = story.long(), question.long()
        blank = story.sum(-1) == 0
        u = self.encode(question, self.emb[0]).unsqueeze(1)  # B,1,d
        mem = self.encode(story, self.emb[0]) + self.temporal[0]
        for h in range(1, self.hops + 1):
            score = torch.bmm(u, mem.transpose(1, 2)).masked_fill(blank.unsqueeze(1), float("-inf"))
            mem = self.encode(story, self.emb[h]) + self.temporal[h]
            u = torch.baddbmm(u, score.softmax(-1), mem)
        return self.out(u.squeeze(1))


def build():
    return MemN2N()
