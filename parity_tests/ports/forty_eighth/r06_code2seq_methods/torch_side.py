"""Method naming from bags of AST paths (code2seq)."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence


class ContextEncoder(nn.Module):
    def __init__(self, tokens, nodes, dim, node_dim=16, rnn=12):
        super().__init__()
        self.node_emb = nn.Embedding(nodes, node_dim)
        self.path_gru = nn.GRU(node_dim, rnn, batch_first=True, bidirectional=True)
        self.token_emb = nn.Embedding(tokens, dim)
        self.project = nn.Linear(2 * dim + 2 * rnn, dim, bias=False)

    def subtokens(self, ids):
        return torch.einsum("bcsd,bcs->bcd", self.token_emb(ids), (ids > 0).to(self.token_emb.weight.dtype))

    def walk(self, paths):
        flat = paths.flatten(0, 1)
        lengths = (flat > 0).sum(-1).clamp(min=1).cpu()
        packed = pack_padded_sequence(self.node_emb(flat), lengths, batch_first=True, enforce_sorted=False)
        _, h = self.path_gru(packed)
        return torch.cat(h.unbind(0), dim=-1).unflatten(0, paths.shape[:2])

    def forward(self, starts, paths, ends):
        parts = self.subtokens(starts), self.walk(paths), self.subtokens(ends)
        return self.project(torch.cat(parts, dim=-1)).tanh()


class NameDecoder(nn.Module):
    def __init__(self, words, dim):
        super().__init__()
        self.emb = nn.Embedding(words, dim)
        self.gru = nn.GRU(dim, dim, batch_first=True)
        self.attn = nn.Linear(dim, dim, bias=False)
        self.mix = nn.Linear(2 * dim, dim, bias=False)
        self.vocab = nn.Linear(dim, words, bias=False)

    def forward(self, memory, pad, prefix):
        memory = memory.masked_fill(pad.unsqueeze(-1), 0.0)
        h0 = memory.mean(dim=1)
        states, _ = self.gru(self.emb(prefix), h0.unsqueeze(0))
        scores = torch.bmm(states, self.attn(memory).transpose(1, 2))
        scores = scores.masked_fill(pad.unsqueeze(1), float("-inf"))
        glimpse = torch.bmm(scores.softmax(-1), memory)
        return self.vocab(self.mix(torch.cat([glimpse, states], dim=-1)).tanh())


class Code2Seq(nn.Module):
    def __init__(self, tokens=60, nodes=30, words=40, dim=24):
        super().__init__()
        self.encoder = ContextEncoder(tokens, nodes, dim)
        self.decoder = NameDecoder(words, dim)

    def forward(self, starts, paths, ends, prefix):
        starts, paths, ends, prefix = (ids.long() for ids in (starts, paths, ends, prefix))
        return self.decoder(self.encoder(starts, paths, ends), paths[..., 0] == 0, prefix)


def build():
    return Code2Seq()


def loss(outputs, targets):
    return F.cross_entropy(outputs.transpose(1, 2), targets.long(), ignore_index=0)
